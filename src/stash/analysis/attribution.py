"""Profile in, breakdown out: stalls by paired differences, second opinions beside them, the method's own error."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from scipy.special import stdtrit

from stash.analysis.breakdown import (
    SIGNIFICANT_SHARE,
    Breakdown,
    Communication,
    Paper,
    Rates,
    SampleCounts,
    SlowRank,
    Stall,
    Surfacing,
    Waits,
    missing_stalls,
    ranks_per_node,
)
from stash.analysis.estimators import disputes
from stash.analysis.remarks import remarks
from stash.analysis.stability import stability
from stash.analysis.step_times import (
    StepTimes,
    count_samples,
    mean_over_rounds,
    rank_times,
    rank_values,
    replicas_per_rank,
    step_matrix,
)
from stash.core.errors import ArtefactError, StashError
from stash.core.intervals import Interval
from stash.core.ladder import DATA_STALLS, RUNGS, STALLS, rung, stall_names
from stash.core.records.profile import Profile
from stash.core.rounds import increments, stands_out, whole_estimate

# Second opinions -------------------------------------------------------------------------------------------
# Second opinions on a breakdown: rates, waits for the loader, the gradient exchange by itself, hidden stalls.
#
# A stall behind another does not show. These numbers tell what would: the rates G, P and F of DS-Analyzer (VLDB
# 2021), total against exposed communication, and what surfaces once a stall is gone.

MIN_TIMED = 0.05
"""Seconds that a loader must have been timed for."""


def rates(profile: Profile, kept: StepTimes, samples: SampleCounts | None) -> Rates:
    """G from the top replay rung, P and F from the loaders alone; ``None`` unless all ranks were measured."""
    top, device = kept.top_replay, None
    count = samples.per_rung.get(top) if samples is not None and top is not None else None
    if top and count and (rung(top).active == "all" or profile.world_size == 1):
        device = count / float(kept.of(top).mean())
    prep, fetch = (_loader_rate(profile, feed) for feed in ("warm", "cold"))
    prep_spread, fetch_spread = (_spread(profile, feed) for feed in ("warm", "cold"))
    return Rates(device=device, prep=prep, fetch=fetch, prep_spread=prep_spread, fetch_spread=fetch_spread)


def _spread(profile: Profile, feed: str) -> float | None:
    """Half-width of a loader's rate as a share of it, of the rank that varies most; unknown of a single part."""
    parts: dict[int, list[float]] = defaultdict(list)
    for rate in profile.rates:
        if rate.feed == feed and rate.part_seconds:
            of_part = rate.samples / len(rate.part_seconds)
            parts[rate.rank] += [seconds / of_part for seconds in rate.part_seconds]
    if not parts or any(len(each) < 3 for each in parts.values()):
        return None
    return max(_half_width(each) / float(np.mean(each)) for each in parts.values())


def _half_width(values: list[float]) -> float:
    return float(stdtrit(len(values) - 1, 0.975)) * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _loader_rate(profile: Profile, feed: str) -> float | None:
    """Unknown where less was timed than tells a rate: what stood ready is no rate."""
    samples: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for rate in profile.rates:
        if rate.feed == feed:
            samples[rate.rank] += rate.samples
            seconds[rate.rank] += rate.seconds
    if samples.keys() < {rank.rank for rank in profile.ranks} or not all(s >= MIN_TIMED for s in seconds.values()):
        return None
    return sum(samples[rank] / seconds[rank] for rank in samples) * replicas_per_rank(profile) or None


def communication(profile: Profile, kept: StepTimes) -> Communication:
    """Total exchange time from the collectives run alone; the exposed part from the rungs."""
    widest = "world" if any(c.scope == "world" for c in profile.collectives) else "node"
    runs = [c for c in profile.collectives if c.scope == widest and c.seconds > 0]
    total = float(np.median([c.seconds for c in runs])) if runs else None
    wire = None
    if runs and total and runs[0].ranks > 1:
        wire = runs[0].bytes / total * 2 * (runs[0].ranks - 1) / runs[0].ranks
    latencies = [c.latency_seconds for c in runs if c.latency_seconds is not None]
    exposed = _exposed(kept)
    return Communication(
        total_seconds=total,
        exposed_seconds=exposed.value if exposed else None,
        exposed_low=exposed.low if exposed else None,
        exposed_high=exposed.high if exposed else None,
        bytes=exchanged_bytes(profile),
        wire_bytes_per_second=wire,
        latency_seconds=float(np.median(latencies)) if latencies else None,
    )


def _exposed(kept: StepTimes) -> Interval | None:
    """The top replay rung less the rung just below all exchange: the interconnect and the network stall together."""
    without = [name for name in kept.rungs if not rung(name).exchanges]
    top = kept.top_replay
    if not without or top is None or not rung(top).exchanges:
        return None
    return increments(np.column_stack([kept.of(without[-1]), kept.of(top)]))[0]


def exchanged_bytes(profile: Profile) -> int | None:
    """Bytes one rank exchanges per step: as seen, else of buckets or gradients, else as many as its parameters."""
    work = profile.workload
    seen = None if work.exchanged_bytes is None else round(work.exchanged_bytes)
    return seen or sum(work.bucket_bytes) or sum(g.bytes for g in work.gradients) or work.parameter_bytes


def waits(profile: Profile, kept: StepTimes) -> Waits:
    """Seconds per step that the slowest rank waited for its loader; ``None`` where it was not recorded."""
    values = rank_values(profile, lambda block: block.wait_seconds)
    return Waits(
        **{
            each.feed: mean_over_rounds(values, each.name, kept.rounds)
            for each in RUNGS
            if each.reads_data and each.name in kept.rungs
        }
    )


def surfacing(
    rungs: tuple[str, ...], stalls: tuple[Stall, ...], speeds: Rates, samples: float | None
) -> tuple[Surfacing, ...]:
    """For each significant stall: the data stall that appears once it is gone, if one does.

    The loaders alone need ``samples`` / P seconds for those of a step. A step that becomes shorter than that waits
    for them: max(0, t_P − (step − stall)). Under ``cold`` the same holds with F, which includes preparing.
    """
    limits = {"prep": speeds.prep, "fetch": speeds.fetch if "cold" in rungs else None}
    needed = {name: samples / rate for name, rate in limits.items() if rate and samples}
    if not needed:
        return ()
    appears = max(needed, key=lambda name: needed[name])
    if appears == "fetch" and needed["fetch"] < 1.05 * needed.get("prep", 0.0):
        appears = "prep"
    step = sum(stall.seconds for stall in stalls)
    found = []
    for stall in stalls:
        if not stall.significant or stall.name in (STALLS[0], *DATA_STALLS):
            continue
        hidden = needed[appears] - (step - stall.seconds)
        if hidden >= SIGNIFICANT_SHARE * step:
            found.append(Surfacing(removed=stall.name, appears=appears, seconds=hidden))
    return tuple(found)


# Method error ----------------------------------------------------------------------------------------------
# The method's own error: how far a stall may be from the truth besides what its interval says of noise.
#
# An interval over rounds tells how far steps repeat themselves. It knows nothing of what is the same in every
# round: the interpreter's work between layers, copies into buckets, bookkeeping of files. How large that is was
# seen where truth is known; what could not be tried there (``transfer``) stays unknown.

MEASURED = "2026-11-22, 145 stalls of 40 emulated jobs on 2 cores of AMD EPYC over gloo"
"""When and on what; ``python -m bench.truth.method_error bench/truth/data/2026-11-22.md`` fits it."""
SECONDS = {
    "compute": 0.68e-3,
    "contention": 0.0,
    "interconnect": 2.64e-3,
    "network": 1.85e-3,
    "prep": 0.83e-3,
    "fetch": 1.03e-3,
}
"""Half of a 95 % interval per step; 0 where noise explained every error."""
SHARE = 0.01
"""Of the stall, besides."""


def method_error(stall: str, seconds: float) -> float | None:
    """Half of the method's own 95 % interval of a stall that takes ``seconds``; ``None`` if unknown."""
    fixed = SECONDS.get(stall)
    return None if fixed is None else math.hypot(fixed, SHARE * seconds)


# Attribution -----------------------------------------------------------------------------------------------
# Profile in, breakdown out: the stalls of a step by paired differences, and the rates seen beside them.
#
# The stalls sum exactly to the step because they are differences of neighbouring rungs over the same kept rounds.
# What is only a second opinion (loader waits, rates, the exchange run by itself) stands beside the stalls and is
# never mixed into them.

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
    """The paper's percentages; its formulas stand in ``docs/method.md``."""
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
