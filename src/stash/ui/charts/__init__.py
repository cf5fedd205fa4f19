"""Charts as data, and their renderer to SVG."""
