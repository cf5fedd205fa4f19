"""What the measured links of a machine mean, next to what its type should have."""
