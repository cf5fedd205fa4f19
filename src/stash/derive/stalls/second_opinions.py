"""Second opinions on a breakdown: rates, waits for the loader, the gradient exchange by itself, hidden stalls.

A stall behind another does not show. These numbers tell what would: the rates G, P and F of DS-Analyzer
(VLDB 2021), total against exposed communication, and what surfaces once a stall is gone.
"""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
from scipy.special import stdtrit

from stash.base.ladder import DATA_STALLS, RUNGS, STALLS, rung
from stash.base.records import Profile
from stash.base.stats.intervals import Interval
from stash.base.stats.rounds import increments
from stash.derive.stalls.breakdown import (
    SIGNIFICANT_SHARE,
    Communication,
    Rates,
    SampleCounts,
    Stall,
    Surfacing,
    Waits,
)
from stash.derive.stalls.samples import replicas_per_rank
from stash.derive.stalls.step_times import StepTimes, mean_over_rounds, rank_values

LEAST_TIMED = 0.05
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
    if samples.keys() < {rank.rank for rank in profile.ranks} or not all(s >= LEAST_TIMED for s in seconds.values()):
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
