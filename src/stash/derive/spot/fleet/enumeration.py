"""Every fleet within the quotas, weighed at once: exact for small pools, and what other searches are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stash.derive.predict.uncertainty.draws import Array
from stash.derive.spot.fleet.weighing import FleetWish, WeighedFleets, weigh
from stash.derive.spot.speed.queueing import exact, of_pool, states

MOST_FLEETS = 300_000
"""WeighedFleets in less than a second, in less than 200 MB."""


@dataclass(frozen=True)
class Everything:
    """All fleets of a pool but the empty one, and what each takes."""

    counts: Array
    weighed: WeighedFleets


def fleets(wish: FleetWish) -> int:
    """How many there are."""
    return states(wish.quotas) - 1


def everything(wish: FleetWish) -> Everything:
    """All of them; the caller has seen to it that there are not too many, and one at least."""
    if wish.model == "queue":
        found = exact(wish.quotas, of_pool(wish.pool))
        return Everything(found.counts[1:], weigh(wish, found.counts[1:], found.seconds[1:]))
    shape = tuple(quota + 1 for quota in wish.quotas)
    counts = np.stack(np.unravel_index(np.arange(1, states(wish.quotas)), shape), axis=1).astype(float)
    return Everything(counts, weigh(wish, counts))


def neighbours(wish: FleetWish, counts: Array) -> Array:
    """Fleets one machine more, fewer or other than this one, within the quotas: [fleet, type]."""
    one = np.eye(len(counts))
    more, fewer = one[counts < np.array(wish.quotas)], one[counts > 0]
    other = (more[None, :, :] - fewer[:, None, :]).reshape(-1, len(counts))
    found: Array = counts + np.concatenate([more, -fewer, other])
    return np.unique(found[found.any(axis=1) & (found != counts).any(axis=1)], axis=0)
