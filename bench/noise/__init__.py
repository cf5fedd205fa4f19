"""The noise of steps: recorded from a machine, and drawn from models of it, for simulated profiles."""
