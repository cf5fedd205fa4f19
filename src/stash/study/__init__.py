"""``stash characterize``: models, batches and machines as cells, run wherever they are to be measured."""
