"""What a forecast is made of: stalls as draws, and the breakdown they add up to."""
