"""A plan of what to rent, for people and for programs."""
