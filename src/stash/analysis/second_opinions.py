"""Second opinions on a breakdown: rates, waits for the loader, the gradient exchange by itself, hidden stalls.

A stall behind another does not show. These numbers tell what would: the rates G, P and F of DS-Analyzer (VLDB
2021), waits for the loader, total against exposed communication, and what surfaces once a stall is gone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import numpy as np

from stash.analysis.breakdown import (
    SIGNIFICANT_SHARE,
    Communication,
    Rates,
    SampleCounts,
    Stall,
    Surfacing,
    Waits,
)
from stash.analysis.step_times import StepTimes, count_readers, mean_over_rounds, rank_values
from stash.analysis.uncertainty import launch_error
from stash.core.grouping import group_by
from stash.core.intervals import mean_interval
from stash.core.ladder import DATA_STALLS, EXCHANGE_STALLS, RUNGS, STALLS, rung
from stash.core.measured import Block
from stash.core.records.profile import Profile
from stash.core.rounds import increments

MIN_TIMED = 0.05
"""Seconds that a loader must have been timed for."""


def paper_rates(profile: Profile, kept: StepTimes, samples: SampleCounts | None) -> Rates:
    """G from the top replay rung, P and F from the loaders alone; ``None`` unless all ranks were measured."""
    top = kept.top_replay
    device = None
    count = samples.per_rung.get(top) if samples is not None and top is not None else None
    if top and count and (rung(top).active == "all" or profile.world_size == 1):
        device = count / float(kept.column_of(top).mean())
    prep, prep_spread = _loader_rate(profile, "warm")
    fetch, fetch_spread = _loader_rate(profile, "cold")
    return Rates(
        device=device, prep=prep, fetch=fetch, prep_spread=prep_spread, fetch_spread=fetch_spread
    )


def _loader_rate(profile: Profile, feed: str) -> tuple[float | None, float | None]:
    """The rate, and the half-width of its interval as a share of it, of the rank that varies most.

    The rate is unknown where less was timed than tells one: what stood ready is no rate. The spread is unknown of
    less than three parts.
    """
    by_rank = group_by(
        (each for each in profile.rates if each.feed == feed), lambda each: each.rank
    )
    seconds = {rank: sum(each.seconds for each in timed) for rank, timed in by_rank.items()}
    rate = None
    if by_rank.keys() >= {rank.rank for rank in profile.ranks} and all(
        took >= MIN_TIMED for took in seconds.values()
    ):
        paces = (sum(each.samples for each in by_rank[rank]) / seconds[rank] for rank in by_rank)
        rate = sum(paces) * count_readers(profile, 1) or None
    intervals = []
    for timed in by_rank.values():
        parts = [
            part * len(each.part_seconds) / each.samples
            for each in timed
            for part in each.part_seconds
        ]
        if parts and len(parts) < 3:
            return rate, None
        if parts:
            intervals.append(mean_interval(parts))
    shares = ((interval.half_width or 0.0) / interval.value for interval in intervals)
    return rate, max(shares, default=None)


def measure_communication(
    profile: Profile, kept: StepTimes, stalls: Sequence[Stall]
) -> Communication:
    """Total exchange time from the collectives run alone; the exposed part from the rungs, that of all its stalls."""
    widest = "world" if any(c.scope == "world" for c in profile.collectives) else "node"
    runs = [c for c in profile.collectives if c.scope == widest and c.seconds > 0]
    total = median(c.seconds for c in runs) if runs else None
    wire = None
    if total and runs[0].ranks > 1:
        wire = runs[0].bytes / total * 2 * (runs[0].ranks - 1) / runs[0].ranks
    latencies = [c.latency_seconds for c in runs if c.latency_seconds is not None]
    # The top replay rung less the rung just below all exchange: interconnect and network stall together.
    without = [name for name in kept.rungs if not rung(name).exchanges]
    top = kept.top_replay
    exposed = None
    if without and top is not None and rung(top).exchanges:
        parts = [stall for stall in stalls if stall.name in EXCHANGE_STALLS]
        if len(parts) == 1:
            exposed = parts[0].time
        else:
            columns = np.column_stack([kept.column_of(without[-1]), kept.column_of(top)])
            errors = (stall.parts.common for stall in parts)
            launch = launch_error(kept.step_seconds)
            exposed = increments(columns)[0].add_error(math.hypot(launch, *errors))
    return Communication(
        total_seconds=total,
        exposed_seconds=exposed.value if exposed else None,
        exposed_low=exposed.low if exposed else None,
        exposed_high=exposed.high if exposed else None,
        bytes=exchanged_bytes(profile),
        wire_bytes_per_second=wire,
        latency_seconds=median(latencies) if latencies else None,
    )


def exchanged_bytes(profile: Profile) -> int | None:
    """Bytes one rank exchanges per step: as seen, else of buckets or gradients, else as many as its parameters."""
    work = profile.workload
    seen = None if work.exchanged_bytes is None else round(work.exchanged_bytes)
    return (
        seen
        or sum(work.bucket_bytes)
        or sum(g.bytes for g in work.gradients)
        or work.parameter_bytes
    )


def measure_waits(profile: Profile, kept: StepTimes) -> Waits:
    """Seconds per step that the slowest rank waited for its loader; ``None`` where it was not recorded.

    Of an accelerator what its queue ran dry for, where that was seen: its host may wait while it works.
    """
    ahead = {rank.rank for rank in profile.ranks if rank.device != "cpu"}

    def block_wait(block: Block) -> float | None:
        if block.rank not in ahead or not block.stage_seconds or block.wait_seconds is None:
            return block.wait_seconds
        # the first is without others' delays
        return min(block.wait_seconds, block.stage_seconds.get("input", 0.0))

    values = rank_values(profile, block_wait)
    return Waits(
        **{
            each.feed: mean_over_rounds(values, each.name, kept.rounds)
            for each in RUNGS
            if each.reads_data and each.name in kept.rungs
        }
    )


def find_surfacing(
    rungs: tuple[str, ...], stalls: tuple[Stall, ...], speeds: Rates, counts: SampleCounts | None
) -> tuple[Surfacing, ...]:
    """Find, for each significant stall, the data stall that appears once it is gone, if one does.

    The loaders alone need samples / P seconds for those of a step. A step that becomes shorter than that waits
    for them: max(0, t_P − (step − stall)). Under ``cold`` the same holds with F, which includes preparing.
    """
    samples = None if counts is None else counts.per_rung.get(rungs[-1])
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
