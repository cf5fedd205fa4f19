"""Step times by hand, and what a test looks at in a breakdown and in the advice about it."""

from dataclasses import replace

from stash.advice.verdict import verdict
from stash.analysis.attribution import attribute

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


def seconds(breakdown):
    return {stall.name: round(stall.seconds, 9) for stall in breakdown.stalls}


def unknown(breakdown):
    return {missing.name: missing.why for missing in breakdown.skipped}


def drop_blocks(profile, drop):
    return profile.model_copy(update={"blocks": tuple(b for b in profile.blocks if not drop(b))})


def change_blocks(profile, change):
    """``change`` tells what of a block is new."""
    blocks = tuple(replace(block, **change(block)) for block in profile.blocks)
    return profile.model_copy(update={"blocks": blocks})


def flat(rounds=3, **times):
    return {name: [value] * rounds for name, value in times.items()}


def advice_for(profile):
    return verdict(attribute(profile), profile)
