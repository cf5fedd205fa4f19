"""What to rent when machines of a fleet are gone."""
