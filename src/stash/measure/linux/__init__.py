"""What the kernel tells: counters, files, interfaces, cores."""
