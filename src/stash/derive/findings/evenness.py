"""Whether things that should be alike are alike: the GPU pairs of a machine, the nodes of a cluster.

Two are unlike when their medians differ by more than ``UNEVEN`` and their intervals do not touch, so ordinary
noise never makes them so. Knows rates by name, and nothing of what is behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from stash.base.stats.intervals import Interval

K = TypeVar("K")

UNEVEN = 1.4
"""How many times slower than the fastest something must be to be called slow."""


def unevenness(rates: Mapping[K, Interval], factor: float = UNEVEN) -> tuple[K, tuple[K, ...]] | None:
    """The fastest, and those slower than it by ``factor`` beyond their intervals, slowest first; ``None`` if even.

    Rates without an interval are left out. With many members the fastest is so partly by luck; ``factor`` is far
    beyond what that explains.
    """
    known = {name: rate for name, rate in rates.items() if rate.low is not None}
    if len(known) < 2:
        return None
    fastest = max(known, key=lambda name: known[name].value)
    slow = [name for name in known if known[name].slower_than(known[fastest], factor)]
    return (fastest, tuple(sorted(slow, key=lambda name: known[name].value))) if slow else None
