"""The version of this Stash, which every artefact keeps."""

__version__ = "0.1.0"
