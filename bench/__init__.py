"""What is measured about Stash itself: run a module from the repository's root, as ``python -m bench.overhead``."""
