"""The same faulty jobs given to Stash and to other tools (``python -m bench.peers``)."""
