"""What profiles, probes and comparisons look like: in a terminal, as a page, as JSON, for other tools."""
