"""Where the two estimators of data stalls contradict each other: the difference of rungs, and what steps waited.

A cause is known only where the profile holds evidence of it. What follows from a contradiction without one (no
confident verdict) is for the advice to decide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stash.analysis.breakdown import Dispute, Waits
from stash.analysis.step_times import StepTimes, mean_over_rounds, rank_values
from stash.core.intervals import Interval
from stash.core.ladder import DATA_STALLS, RUNGS
from stash.core.records.profile import Block, Profile
from stash.core.rounds import increments
from stash.core.units import format_seconds

DISAGREEMENT = 0.05
"""Of the step: estimators closer than this agree."""
_BUSY = 0.85
"""Of the cores, or of an accelerator: more is as good as all."""


def disputes(profile: Profile, kept: StepTimes, waited: Waits) -> tuple[Dispute, ...]:
    """Where paired data stalls and the time steps waited disagree, beyond noise and 5 % of a step."""
    replay = kept.top_replay
    if replay is None or kept.by_waits:
        return ()
    found: list[Dispute] = []
    for count, each in enumerate((each for each in RUNGS if each.reads_data), 1):
        wait = waited.warm if each.feed == "warm" else waited.cold
        if wait is None:
            continue
        (paired,) = increments(np.column_stack([kept.of(replay), kept.of(each.name)]))
        apart = paired.above(wait) or paired.below(wait)
        if apart and abs(wait - paired.value) > DISAGREEMENT * kept.step_seconds:
            why, explained = _cause(profile, kept, each.name, paired, wait)
            names = DATA_STALLS[:count]
            found.append(Dispute(stalls=names, difference=paired.value, waited=wait, why=why, explained=explained))
    return tuple(found)


def _cause(profile: Profile, kept: StepTimes, name: str, paired: Interval, wait: float) -> tuple[str, bool]:
    """Why they are apart, and whether the profile shows that."""
    excess = paired.value - wait
    if excess > 0:
        if not any(loader.workers for loader in profile.workload.loaders):
            return "steps on fresh batches take longer than on replayed ones, for no reason that was measured", False
        return _of_workers(profile, kept, name, excess)
    if any(rank.device != "cpu" for rank in profile.ranks):
        busy = _mean(profile, kept, name, lambda block: block.gpu)
        if busy is not None and busy * float(kept.of(name).mean()) + wait > float(kept.of(name).mean()):
            return "part of the wait overlaps with work that the device still had to do", True
        return "the device may still have had work meanwhile, but how busy it was does not show that", False
    return "replayed batches may take longer than fresh ones, or the machine changed within the rounds", False


def _of_workers(profile: Profile, kept: StepTimes, name: str, excess: float) -> tuple[str, bool]:
    """Whether the loader's workers slow the step by competing for cores: they work enough, and cores are busy."""
    work = rank_values(
        profile, lambda block: block.fetch_seconds if block.fetch_cpu_seconds is None else block.fetch_cpu_seconds
    )
    of_node = mean_over_rounds(work, name, kept.rounds, lambda ranks: sum(ranks) / profile.nodes)
    busy = _mean(profile, kept, name, lambda block: block.cpu)
    if of_node is None or busy is None:
        return "the loader's workers may also slow the step itself, but what they take of the cores is unknown", False
    if of_node >= excess and busy >= _BUSY:
        return f"the loader's workers also slow the step itself: {busy:.0%} of the cores are busy", True
    return (
        f"the loader's workers do not explain it: they work {format_seconds(of_node)} a step, and {busy:.0%} of the "
        "cores are busy"
    ), False


def _mean(profile: Profile, kept: StepTimes, name: str, read: Callable[[Block], float | None]) -> float | None:
    found = [read(block) for block in profile.blocks if block.rung == name and block.round in kept.rounds]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known and len(known) == len(found) else None
