"""All that patches PyTorch and the frameworks on it; each module lives with the thing that it wraps."""
