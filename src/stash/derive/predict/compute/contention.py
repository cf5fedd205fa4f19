"""What several devices cost each other, of a step: contention of a job that was profiled on one device alone.

Of published models, by how much longer their steps took than their exchange explains. Knows no profile.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from stash.derive.predict.uncertainty.draws import Array
from stash.derive.predict.uncertainty.quantity import Quantity
from stash.keep.catalog.collectives import node_scaling


def crowding() -> Quantity:
    """By how much a step takes longer on several devices than its exchange explains, as a fraction of it on one.

    Where nobody measured it: of published models, by how much theirs did (shared hosts and power, input, launching
    kernels, an exchange that is not DistributedDataParallel's). Median and the ends between which 95 % of them lie.
    """
    found = node_scaling()
    low, middle, high = crowded(np.array([0.025, 0.5, 0.975])).tolist()
    return Quantity(
        value=middle,
        low=low,
        high=high,
        origin="data sheet",
        as_of=max(each.as_of for each in found),
        source="; ".join(dict.fromkeys(each.source for each in found)),
    )


def crowded(uniforms: Array) -> Array:
    """That fraction at these places of its distribution, between 0 and 1: as it was seen, every model on a machine
    counting alike. Most models lose some per cent and a few a third, which no normal distribution holds."""
    losses, places = _losses()
    return np.interp(uniforms, places, losses)


@lru_cache(maxsize=1)
def _losses() -> tuple[Array, Array]:
    """Published losses in ascending order, and each one's place between 0 and 1."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for each in node_scaling():
        groups.setdefault((each.source, each.model, each.machine), []).append(each.loss)
    counted = sorted((loss, 1 / len(group)) for group in groups.values() for loss in group)
    losses, counts = np.array(counted).T
    return losses, (np.cumsum(counts) - counts / 2) / counts.sum()
