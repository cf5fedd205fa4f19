"""Pages that are made from the source."""
