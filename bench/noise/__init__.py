"""Noise: models of how steps vary, for simulated profiles (``models``; ``steps`` records what they draw from).

And real jobs profiled beside real other work: ``record`` takes the profiles, ``play`` judges them.
"""
