"""When Python need not look for garbage: while many records are made that are all needed to the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage() -> Iterator[None]:
    """A large job's blocks, or a market's forecasts, hold no cycles: looking for some is a seventh to half of all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
