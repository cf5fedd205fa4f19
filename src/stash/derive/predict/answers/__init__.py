"""What forecasts mean for whoever asked: what limits next, what fits, what suffices, what cannot be told."""
