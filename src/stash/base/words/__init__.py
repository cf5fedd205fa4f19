"""Numbers as people write and read them: units, roundings that keep sums, quantities with their spread."""
