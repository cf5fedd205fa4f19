"""Measures a training job, or a machine's links, and leaves one saved artefact."""
