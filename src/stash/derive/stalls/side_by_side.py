"""The ranks of a job side by side: what a step takes each of them, under every rung.

A rung's time in the breakdown is that of one rank; these are all of them, with what their own rounds leave open.
"""

from __future__ import annotations

from stash.base.records import Profile, Record
from stash.base.stats.intervals import Interval, mean_interval
from stash.derive.stalls.step_times import StepTimes, rank_values


class RankTime(Record):
    """One rank's step under one rung: mean over the kept rounds, in seconds."""

    rank: int
    rung: str
    time: Interval


def ranks_side_by_side(profile: Profile, kept: StepTimes) -> tuple[RankTime, ...]:
    """All ranks' times by rung, in ladder order, ranks ascending; rungs that only the leader climbs have one.

    Blocks of ranks that the profile does not name are left out.
    """
    named = {rank.rank for rank in profile.ranks}
    values = rank_values(profile, lambda block: block.seconds)
    found: list[RankTime] = []
    for name in kept.rungs:
        per_rank: dict[int, list[float]] = {}
        for number in kept.rounds:
            for rank, seconds in values.get((number, name), {}).items():
                if rank in named:
                    per_rank.setdefault(rank, []).append(seconds)
        found += (
            RankTime(rank=rank, rung=name, time=mean_interval(times)) for rank, times in sorted(per_rank.items())
        )
    return tuple(found)
