"""Step times by hand, and what a test looks at in a breakdown and in the advice about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from stash.advice.verdict import Advice, verdict
from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown
from stash.core.measured import Block
from stash.core.records.profile import Profile

CALM = {
    "solo": [0.100] * 3,
    "crowd": [0.104] * 3,
    "node": [0.140] * 3,
    "warm": [0.170] * 3,
    "cold": [0.176] * 3,
}
"""Compute 100 ms, contention 4, interconnect 36, prep 30, fetch 6; the same in every round."""
PREP = {"solo": 0.1, "crowd": 0.1, "node": 0.1, "warm": 0.2}
"""For ``flat``: half of the step is prep."""
FETCH = {**PREP, "warm": 0.1, "cold": 0.2}
"""For ``flat``: half of the step is fetch."""


def seconds(breakdown: Breakdown) -> dict[str, float]:
    return {stall.name: round(stall.seconds, 9) for stall in breakdown.stalls}


def unknown(breakdown: Breakdown) -> dict[str, str]:
    return {missing.name: missing.why for missing in breakdown.skipped}


def drop_blocks(profile: Profile, drop: Callable[[Block], bool]) -> Profile:
    return profile.model_copy(update={"blocks": tuple(b for b in profile.blocks if not drop(b))})


def change_blocks(profile: Profile, change: Callable[[Block], Mapping[str, Any]]) -> Profile:
    """``change`` tells what of a block is new."""
    blocks = tuple(replace(block, **change(block)) for block in profile.blocks)
    return profile.model_copy(update={"blocks": blocks})


def flat(rounds: int = 3, **times: float) -> dict[str, list[float]]:
    return {name: [value] * rounds for name, value in times.items()}


def advice_for(profile: Profile) -> Advice:
    return verdict(attribute(profile), profile)
