"""How much of a data set the page cache serves, epoch after epoch, when only a part of it fits.

Every epoch reads each sample once, in a new order. Knows shares alone: nothing of disks, and nothing of the first
epoch, in which all is fetched.
"""

from __future__ import annotations

import numpy as np

from stash.derive.predict.uncertainty.draws import Array

USABLE = 0.7
"""Of a machine's memory: what the page cache may take, as training and its workers need the rest."""


def ideal_hits(cached: Array) -> Array:
    """Share of reads served by a cache that keeps what it has: the part of the data set that fits."""
    return np.minimum(1.0, np.asarray(cached, np.float64))


def least_recently_used_hits(cached: Array) -> Array:
    """Share of reads served by a cache that drops what was read longest ago, when ``cached`` of the data set fits.

    A sample at place v of one shuffled epoch and u of the next (shares of it) is still there if fewer than ``cached``
    other samples were read in between: 1 − v + u − u(1 − v) = 1 − v(1 − u) of them are distinct. With u and v
    uniform, P(v(1 − u) > 1 − c) = c + (1 − c) ln(1 − c): far less than c, which DS-Analyzer (VLDB 2021) calls
    thrashing. In a fixed order the share is 0 below full caching.
    """
    missing = 1.0 - ideal_hits(cached)
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(missing > 0, missing * np.log(missing), 0.0)
    return 1.0 - missing + lost


def page_cache_hits(cached: Array, keeps: Array) -> Array:
    """Between the two, as Linux is: its two lists protect what was read twice (``keeps`` 1: ideal, 0: least recent).

    Where Linux lies depends on its version and on other readers, and is not known here: a forecast draws ``keeps``
    over the whole range. Neither end depends on the other, so more cache never serves less.
    """
    worst = least_recently_used_hits(cached)
    return worst + keeps * (ideal_hits(cached) - worst)


def cached_share(memory_bytes: float, dataset_bytes: float) -> float:
    """The part of a data set that a node's page cache holds."""
    return min(1.0, USABLE * memory_bytes / dataset_bytes)
