"""Which cluster is asked about: its facts, from a profile, a probe, the catalog or a user's file."""
