"""A user's script under torchrun on nodes that come and go."""
