"""What a profiled job's step would be, changed: what may be asked, and each stall from its own model."""
