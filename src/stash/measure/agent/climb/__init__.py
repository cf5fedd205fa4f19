"""The climb of one rank: discovery, blocks, and the agreement with the other ranks after each."""
