"""Batches of the job's loaders: copied and replayed, read anew, and what reading them cost. Patches nothing."""
