"""Second opinions on a breakdown: rates, loader waits, the gradient exchange by itself, hidden stalls.

A stall behind another does not show. These numbers tell what would: the rates G, P and F of DS-Analyzer
(VLDB 2021), total against exposed communication, and what surfaces once a stall is gone.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from stash.base.ladder import DATA_STALLS, EXCHANGE_STALLS, RUNGS, STALLS, rung
from stash.base.records import Profile
from stash.base.stats.rounds import estimate
from stash.base.words.units import format_seconds
from stash.derive.stalls.breakdown import SIGNIFICANT_SHARE, Communication, Rates, Stall, Surfacing
from stash.derive.stalls.step_times import StepTimes, mean_over_rounds, rank_values

DISAGREEMENT = 0.05
"""Of the step: estimators closer than this agree."""


def rates(profile: Profile, kept: StepTimes) -> Rates:
    """G from the top replay rung, P and F from the loaders alone; ``None`` unless all ranks were measured."""
    top, batch, device = kept.top_replay, profile.workload.batch, None
    if top and batch and (rung(top).active == "all" or profile.world_size == 1):
        device = batch * profile.world_size / float(kept.of(top).mean())
    return Rates(device=device, prep=_loader_rate(profile, "warm"), fetch=_loader_rate(profile, "cold"))


def _loader_rate(profile: Profile, feed: str) -> float | None:
    samples: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for rate in profile.rates:
        if rate.feed == feed:
            samples[rate.rank] += rate.samples
            seconds[rate.rank] += rate.seconds
    if samples.keys() < {rank.rank for rank in profile.ranks} or not all(s > 0 for s in seconds.values()):
        return None
    return sum(samples[rank] / seconds[rank] for rank in samples) or None


def communication(profile: Profile, stalls: tuple[Stall, ...]) -> Communication:
    """Total exchange time from the collectives run alone; the exposed part from the stalls."""
    exposed = [stall.seconds for stall in stalls if stall.name in EXCHANGE_STALLS]
    widest = "world" if any(c.scope == "world" for c in profile.collectives) else "node"
    runs = [c for c in profile.collectives if c.scope == widest and c.seconds > 0]
    total = float(np.median([c.seconds for c in runs])) if runs else None
    wire = None
    if runs and total and runs[0].ranks > 1:
        wire = runs[0].bytes / total * 2 * (runs[0].ranks - 1) / runs[0].ranks
    return Communication(
        total_seconds=total,
        exposed_seconds=sum(exposed) if exposed else None,
        bytes=gradient_bytes(profile),
        wire_bytes_per_second=wire,
    )


def gradient_bytes(profile: Profile) -> int | None:
    """Bytes one rank exchanges per step: its buckets, or its gradients, or as many as its parameters."""
    work = profile.workload
    return sum(work.bucket_bytes) or sum(g.bytes for g in work.gradients) or work.parameter_bytes


def surfacing(
    profile: Profile, rungs: tuple[str, ...], stalls: tuple[Stall, ...], speeds: Rates
) -> tuple[Surfacing, ...]:
    """For each significant stall: the data stall that appears once it is gone, if one does.

    The loaders alone need batch · ranks / P seconds per step. A step that becomes shorter than that waits
    for them: max(0, t_P − (step − stall)). Under ``cold`` the same holds with F, which includes preparing.
    """
    samples = (profile.workload.batch or 0) * profile.world_size
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


def loader_wait_notes(profile: Profile, kept: StepTimes) -> tuple[str, ...]:
    """Where paired data stalls and the time steps waited disagree, beyond noise and 5 % of a step."""
    waits = rank_values(profile, lambda block: block.wait_seconds)
    replay = kept.top_replay
    if replay is None:
        return ()
    notes = []
    for count, each in enumerate((each for each in RUNGS if each.reads_data), 1):
        stalls = " and ".join(DATA_STALLS[:count])
        wait = mean_over_rounds(waits, each.name, kept.rounds) if each.name in kept.rungs else None
        if wait is None:
            continue
        paired = estimate(np.column_stack([kept.of(replay), kept.of(each.name)]))[1]
        apart = paired.above(wait) or paired.below(wait)
        if not apart or abs(wait - paired.value) <= DISAGREEMENT * kept.step_seconds:
            continue
        if wait < paired.value:
            meaning = "the loader's workers also slow the step itself, usually by competing for cores"
        elif paired.value < 0:
            meaning = "the machine changed within the rounds, so trust neither to better than that"
        else:
            meaning = "part of the wait overlaps with work that the device still had to do"
        notes.append(
            f"Two estimators of {stalls} disagree: {format_seconds(paired.value)} by difference, "
            f"{format_seconds(wait)} waited for the loader; {meaning}."
        )
    return tuple(notes)
