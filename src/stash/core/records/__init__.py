"""The saved artefacts, as frozen, versioned records: what was measured, nothing derived from it.

Times are in seconds, sizes in bytes, fractions between 0 and 1; ``None`` means "not known" everywhere and is
never written as zero. ``make docs`` makes a page of every field from these docstrings.

History of the schema: 1, November 2026, the first. Later the same month hosts gained their probed links and
more of their identity, all of it optional. 2, the same month: blocks in columns (``stash.core.columns``). 3, the same
month: what operators do, gradients in several steps, workers, memory.
"""
