"""What every feature shows things with: pages and their renderers, charts, options. Knows no feature."""
