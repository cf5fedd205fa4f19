"""Profile in, breakdown out: the stalls of a step by paired differences, and the rates seen beside them.

The stalls sum exactly to the step because they are differences of neighbouring rungs over the same kept
rounds. What is only a second opinion (loader waits, rates, the exchange run by itself) stands beside
the stalls and is never mixed into them.
"""

from __future__ import annotations

import math

import numpy as np

from stash.base.errors import ArtefactError, StashError
from stash.base.ladder import stall_names
from stash.base.records import Profile
from stash.base.stats.intervals import Interval
from stash.base.stats.rounds import increments, whole_estimate
from stash.base.stats.slowest import stands_out
from stash.derive.stalls.breakdown import Breakdown, Paper, SlowRank, Stall
from stash.derive.stalls.estimators import disputes
from stash.derive.stalls.method_error import method_error
from stash.derive.stalls.missing import missing_stalls, ranks_per_node
from stash.derive.stalls.remarks import remarks
from stash.derive.stalls.samples import count_samples
from stash.derive.stalls.second_opinions import communication, rates, surfacing, waits
from stash.derive.stalls.stability import stability
from stash.derive.stalls.step_times import StepTimes, rank_times, step_matrix

SLOW_RANK_EXCESS = 0.05


def attribute(profile: Profile, source: str | None = None) -> Breakdown:
    """The breakdown of the profile's mean step over its kept rounds.

    ``source`` is the file it came from, to be named in errors. Raises StashError if no round is complete, and
    ArtefactError if a block's time is no positive number, or nobody's.
    """
    named = source or f"the profile of {profile.workload.name!r}"
    _check_times(profile, named)
    every = step_matrix(profile)
    if not every.rounds:
        raise StashError(f"{named} has no complete round: {_why_no_round(profile, every)}")
    kept = every.calmed()
    *entries, step = whole_estimate(every.matrix)
    stalls, paper = _stalls(kept, entries), _paper(profile, kept)
    samples = count_samples(profile, kept)
    speeds, waited = rates(profile, kept, samples), waits(profile, kept)
    disputed = disputes(profile, kept, waited)
    startups = [loader.startup_seconds for loader in profile.workload.loaders if loader.startup_seconds is not None]
    in_step = samples.per_rung.get(kept.rungs[-1]) if samples is not None else None
    return Breakdown(
        source=named,
        step_seconds=kept.step_seconds,
        step=step,
        samples=samples,
        waits=waited,
        rounds=len(kept.rounds),
        rounds_dropped=len(kept.disturbed),
        world_size=profile.world_size,
        nodes=profile.nodes,
        rungs=kept.rungs,
        stalls=stalls,
        skipped=missing_stalls(profile, kept.rungs),
        paper=paper,
        stability=stability(profile, kept, stalls, samples),
        rates=speeds,
        communication=communication(profile, kept),
        slow_rank=_slow_rank(profile, kept),
        by_waits=kept.by_waits,
        disputes=disputed,
        surfacing=surfacing(kept.rungs, stalls, speeds, in_step),
        startup_seconds=sum(startups) if startups else None,
        notes=(*remarks(profile, stalls, speeds, disputed, paper), *profile.notes),
    )


def _why_no_round(profile: Profile, every: StepTimes) -> str:
    seen = {block.rung for block in profile.blocks}
    never = [name for name in every.rungs if name not in seen]
    reached = f"nothing was measured under {', '.join(never)}" if never else "each lacks blocks of some rank"
    reached = reached if profile.blocks else "nothing was measured"
    ended = f" (the run ended: {profile.ended})" if profile.ended else ""
    return f"{reached}{ended}; profile again with a larger --budget"


def _check_times(profile: Profile, named: str) -> None:
    if profile.blocks and not profile.ranks:
        raise ArtefactError(f"{named} is damaged: it names no rank; profile again")
    for block in profile.blocks:
        if block.steps > 0 and not 0 < block.seconds < math.inf:
            raise ArtefactError(
                f"{named} is damaged: rank {block.rank}'s steps under {block.rung} in round {block.round} are said "
                f"to take {block.seconds:g} s; profile again"
            )


def _stalls(kept: StepTimes, entries: list[Interval]) -> tuple[Stall, ...]:
    step = kept.step_seconds
    return tuple(
        Stall(name=name, time=time, share=time.value / step, method=method_error(name, time.value))
        for name, time in zip(stall_names(kept.rungs), entries, strict=True)
    )


def _paper(profile: Profile, kept: StepTimes) -> Paper:
    """The paper's percentages; its formulas stand in ``docs/format.md``."""
    times = dict(zip(kept.rungs, kept.matrix.mean(axis=0).tolist(), strict=True))
    one_node = times.get("node")
    if one_node is None and profile.nodes > 1 and max(ranks_per_node(profile).values()) == 1:
        one_node = times.get("crowd")  # a node of one device exchanges nothing
    replay = times.get(kept.top_replay or "")
    return Paper(
        interconnect_pct=_percent(times.get("node"), times.get("solo"), times.get("node")),
        network_pct=_percent(times.get("cluster"), one_node, one_node),
        prep_pct=_percent(times.get("warm"), replay, times.get("warm")),
        fetch_pct=_percent(times.get("cold"), times.get("warm"), times.get("cold")),
    )


def _percent(longer: float | None, shorter: float | None, whole: float | None) -> float | None:
    if longer is None or shorter is None or not whole:
        return None
    return (longer - shorter) / whole * 100


def _slow_rank(profile: Profile, kept: StepTimes) -> SlowRank | None:
    """The slowest rank under ``crowd``, if slower than the others' median by 5 %, beyond noise and beyond luck."""
    if "crowd" not in kept.rungs or len(kept.sets) < 2:
        return None
    ranks, times = rank_times(profile, kept, "crowd")
    if len(ranks) < 2:
        return None
    slowest = int(np.argmax(times.mean(axis=0)))
    others = np.median(np.delete(times, slowest, axis=1), axis=1)
    (excess,) = increments(np.column_stack([others, times[:, slowest]]))
    typical = float(others.mean())
    if excess.value <= SLOW_RANK_EXCESS * typical or not excess.above(0.0) or not stands_out(times):
        return None
    return SlowRank(rank=ranks[slowest], seconds=typical + excess.value, others_seconds=typical)
