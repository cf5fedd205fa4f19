"""What was fitted, predicted and chosen of fleets: a view each, its text for a terminal, and its JSON."""
