"""The paper's network stall: the same ranks on several nodes against all of them on one, from two profiles.

ICDCS 2023 defines it as (T − T1) / T1 on synthetic data: a job on two small instances against the same on one large
one. A profile of the job on several nodes alone cannot tell, since it has no machine that would hold all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from stash.base.records import Profile
from stash.base.stats.differences import together
from stash.base.stats.intervals import Interval
from stash.base.stats.levels import level
from stash.derive.comparison.differences import LAUNCH_SPREAD
from stash.derive.stalls import step_matrix


def network_stall(one: Sequence[Profile], other: Sequence[Profile]) -> Interval | None:
    """(T − T1) / T1 as a fraction, of steps on replayed batches with all exchange; its interval on a log scale.

    ``None`` unless as many ranks are on one node on one side and on several on the other, or where a profile has no
    such steps; without ends where those of a step are unknown.
    """
    one, other = (one, other) if _on_one_node(one) else (other, one)
    ranks = {run.world_size for run in (*one, *other)}
    if len(ranks) > 1 or not _on_one_node(one) or any(run.nodes == 1 for run in other):
        return None
    alone, apart = _replayed(one), _replayed(other)
    if alone is None or apart is None:
        return None
    ratio = apart.value / alone.value
    ends = (alone.low, alone.high, apart.low, apart.high)
    if any(end is None or end <= 0 for end in ends):
        return Interval(value=ratio - 1)
    lowest, highest, fastest, slowest = (math.log(end) for end in ends if end is not None)
    below = math.hypot(math.log(apart.value) - fastest, highest - math.log(alone.value))
    above = math.hypot(slowest - math.log(apart.value), math.log(alone.value) - lowest)
    return Interval(value=ratio - 1, low=ratio * math.exp(-below) - 1, high=ratio * math.exp(above) - 1)


def _on_one_node(runs: Sequence[Profile]) -> bool:
    return all(run.nodes == 1 for run in runs)


def _replayed(runs: Sequence[Profile]) -> Interval | None:
    """The step on replayed batches, under the highest such rung."""
    found = []
    for run in runs:
        times = step_matrix(run).calmed()
        if times.top_replay is None:
            return None
        found.append(level(times.matrix, times.rungs.index(times.top_replay)))
    return together(found, LAUNCH_SPREAD * sum(each.value for each in found) / len(found))
