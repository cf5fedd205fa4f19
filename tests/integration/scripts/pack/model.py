"""The package's model and data."""

from parts import ArrayFolder, network

__all__ = ["ArrayFolder", "network"]
