"""Every file format that Stash reads, changed in ten thousand ways: nothing but a sentence may come of it."""
