"""The generators of random numbers that a whole process shares: Python's, PyTorch's on the host, NumPy's."""

from __future__ import annotations

import pickle
import random
import sys


def seed_all(number: int) -> None:
    """Begin their sequences of that number."""
    random.seed(number)
    sys.modules["torch"].random.default_generator.manual_seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)


class RandomStates:
    """Where they are now, to go on from there later."""

    def __init__(self) -> None:
        numpy = sys.modules.get("numpy")
        self._python, self._torch = random.getstate(), sys.modules["torch"].get_rng_state()
        self._numpy = numpy.random.get_state() if numpy else None

    def pickle(self) -> bytes:
        """What differs once a number was drawn."""
        return pickle.dumps((self._python, self._torch.numpy(), self._numpy))

    def restore(self) -> None:
        random.setstate(self._python)
        sys.modules["torch"].set_rng_state(self._torch)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
