"""A study before it is run: its matrix, what it takes, what will be run, for people and for programs."""
