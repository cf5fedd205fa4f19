"""Training on rented machines that come and go: what was measured, learned, fitted, chosen and lived through."""
