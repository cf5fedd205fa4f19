"""What a job's loaders hand out: replayed, drained, read cold."""
