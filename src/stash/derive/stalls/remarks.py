"""Remarks where two figures of one report seem to contradict each other: which they are, and why both hold.

Each is a sentence about figures that stand in the breakdown. Alteration no number, and says nothing of what to do.
"""

from __future__ import annotations

import numpy as np

from stash.base.ladder import DATA_STALLS, RUNGS
from stash.base.records import Profile
from stash.base.stats.rounds import increments
from stash.base.words.units import format_seconds
from stash.derive.stalls.breakdown import Paper, Rates, Stall, Waits
from stash.derive.stalls.figures import figures, pace
from stash.derive.stalls.step_times import StepTimes

DISAGREEMENT = 0.05
"""Of the step: estimators closer than this agree."""


def remarks(
    profile: Profile, kept: StepTimes, stalls: tuple[Stall, ...], speeds: Rates, waited: Waits, paper: Paper
) -> tuple[str, ...]:
    """Every remark that this breakdown needs."""
    return (
        *_negative(stalls),
        *_estimators(profile, kept, waited),
        *_rates(profile, stalls, speeds),
        *_weak_scaling(profile, paper),
    )


def _workers(profile: Profile) -> int | None:
    return profile.workload.loaders[0].workers if profile.workload.loaders else None


def _negative(stalls: tuple[Stall, ...]) -> list[str]:
    """A stall below zero, and with it shares beyond the whole."""
    written, whole = figures(stalls), 1 + 1e-3
    below = [stall for stall in stalls if written.times[stall.name] < 0]
    if not below:
        return []
    beyond = any(stall.share > whole for stall in stalls)
    told = " and ".join(f"{stall.name} ({written.time(stall.name)})" for stall in below)
    text = f"A step was measured as shorter with {told} than without"
    text += ", so other shares exceed 100%" if beyond else ""
    if all(stall.within_noise for stall in below):
        return [f"{text}: that is noise around a stall close to zero, shown as it was measured."]
    if any(stall.low is None for stall in below):
        return [f"{text}: shown as measured; whether that is noise, one round cannot tell."]
    if all(stall.name == "network" for stall in below) and any(stall.name == "interconnect" for stall in stalls):
        return [
            f"{text}, beyond the noise: each node exchanges by itself over slower routes than all nodes together."
        ]
    return [f"{text}, beyond the noise: the rung below ran under worse conditions, such as a lower clock."]


def _estimators(profile: Profile, kept: StepTimes, waited: Waits) -> list[str]:
    """Where paired data stalls and the time steps waited disagree, beyond noise and 5 % of a step."""
    replay = kept.top_replay
    if replay is None:
        return []
    found = []
    for count, each in enumerate((each for each in RUNGS if each.reads_data), 1):
        wait = waited.warm if each.feed == "warm" else waited.cold
        if wait is None:
            continue
        (paired,) = increments(np.column_stack([kept.of(replay), kept.of(each.name)]))
        apart = paired.above(wait) or paired.below(wait)
        if apart and abs(wait - paired.value) > DISAGREEMENT * kept.step_seconds:
            found.append(
                f"Two estimators of {' and '.join(DATA_STALLS[:count])} disagree: "
                f"{format_seconds(paired.value)} by difference, {format_seconds(wait)} waited for the loader; "
                f"{_why_apart(paired.value, wait, _workers(profile))}."
            )
    return found


def _why_apart(difference: float, wait: float, workers: int | None) -> str:
    if wait > difference and difference < 0:
        return "the machine changed within the rounds, so trust neither to better than that"
    if wait > difference:
        return "part of the wait overlaps with work that the device still had to do"
    if workers:
        return "the loader's workers also slow the step itself, usually by competing for cores"
    return "the step itself is slower on fresh batches than on replayed ones, which caches still hold"


def _rates(profile: Profile, stalls: tuple[Stall, ...], speeds: Rates) -> list[str]:
    """A prep stall although the loaders alone are faster than the devices."""
    prep = next((stall for stall in stalls if stall.name == "prep"), None)
    if prep is None or not prep.significant or not speeds.device or not speeds.prep or speeds.prep < speeds.device:
        return []
    text = f"The loaders alone are faster ({pace(speeds.prep)} samples/s) than the devices ({pace(speeds.device)})"
    if _workers(profile) == 0:
        return [f"{text}, and yet there is a prep stall: without workers nothing is prepared while a step trains."]
    return [f"{text}, and yet there is a prep stall: side by side, loading and training slow each other down."]


def _weak_scaling(profile: Profile, paper: Paper) -> list[str]:
    if paper.network_pct is None:
        return []
    return [
        f"The paper's network percentage compares {profile.nodes} nodes with one node of this job "
        "(weak scaling), not with one node of as many devices."
    ]
