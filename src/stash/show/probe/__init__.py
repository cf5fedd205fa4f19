"""A probe's reading: its view, the terminal's report, and the JSON that other programs rely on."""
