"""Asynchronous training by parameter servers, and its run on machines."""
