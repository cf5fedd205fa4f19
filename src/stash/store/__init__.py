"""A folder or any fsspec URL of artefacts that never change, found by what is in them."""
