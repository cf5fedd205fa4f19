"""The figures of the page on spot fleets: searches, and speed models against published runs."""
