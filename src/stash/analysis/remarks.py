"""Remarks where two figures of one report seem to contradict each other: which they are, and why both hold.

Each is a sentence about figures that stand in the breakdown. Alteration no number, and says nothing of what to do.
"""

from __future__ import annotations

from collections import defaultdict

from stash.analysis.breakdown import Dispute, Paper, Rates, Stall, figures
from stash.core.records.profile import Profile
from stash.core.units import format_seconds, pace

BESIDE = 0.01
"""Of the measured steps: less time than that beside them is not worth a sentence."""


def remarks(
    profile: Profile, stalls: tuple[Stall, ...], speeds: Rates, disputed: tuple[Dispute, ...], paper: Paper
) -> tuple[str, ...]:
    """Every remark that this breakdown needs."""
    return (
        *_negative(stalls),
        *_disputes(disputed),
        *_rates(profile, stalls, speeds),
        *_weak_scaling(profile, paper),
        *_outside_training(profile),
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
    below_zero = " and ".join(f"{stall.name} ({written.time(stall.name)})" for stall in below)
    text = f"A step was measured as shorter with {below_zero} than without"
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


def _disputes(disputed: tuple[Dispute, ...]) -> list[str]:
    return [
        f"Two estimators of {' and '.join(each.stalls)} disagree: {format_seconds(each.difference)} by difference, "
        f"{format_seconds(each.waited)} waited for the loader; {each.why}."
        for each in disputed
    ]


def _outside_training(profile: Profile) -> list[str]:
    """What the script did within the measured blocks that was no step, of the rank that did most."""
    other: dict[int, float] = defaultdict(float)
    steps: dict[int, float] = defaultdict(float)
    for block in profile.blocks:
        other[block.rank] += block.interrupted_seconds
        steps[block.rank] += block.seconds
    rank = max(other, key=lambda each: other[each], default=None)
    if rank is None or other[rank] <= BESIDE * steps[rank]:
        return []
    return [
        f"Other than training: {format_seconds(other[rank])} beside {format_seconds(steps[rank])} of measured steps, "
        "in evaluations and between epochs, which is part of no step; while Stash measures, a loop that does not "
        "train gets one batch of its loader."
    ]


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
