"""What a step waits for its data: workers, cores, page cache and storage of a node."""
