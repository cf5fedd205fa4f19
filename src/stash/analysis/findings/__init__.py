"""What the measured links of a machine mean, beside what its type should have."""
