"""A breakdown checks itself: one that contradicts itself is never made."""

from __future__ import annotations

import math

import pytest
from breakdowns import CALM
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.analysis.breakdown import Breakdown, Stall
from stash.core.errors import StashError
from stash.core.intervals import Interval

GOOD = attribute(build(CALM), "run.stash.json")


def changed(**fields: object) -> Breakdown:
    return Breakdown(**{**{name: getattr(GOOD, name) for name in Breakdown.model_fields}, **fields})


def with_time(name: str, **time: float | None) -> tuple[Stall, ...]:
    return tuple(
        stall.model_copy(update={"time": stall.time.model_copy(update=time)}) if stall.name == name else stall
        for stall in GOOD.stalls
    )


def test_a_stall_is_its_time_with_an_interval():
    stall = Stall(name="prep", time=Interval(value=0.03, low=-0.01, high=0.07, repetitions=3), share=0.2)
    assert (stall.seconds, stall.low, stall.high, stall.within_noise) == (0.03, -0.01, 0.07, True)
    assert not stall.significant
    assert GOOD.stall("prep").time.repetitions == 3


def test_a_breakdown_that_agrees_with_itself_is_made():
    assert changed() == GOOD
    assert changed(step_seconds=GOOD.step_seconds * (1 + 1e-15)).rounds == 3  # to rounding


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"step_seconds": 0.18}, r"its stalls add up to 0\.176 s and its step takes 0\.18 s"),
        ({"step_seconds": math.nan}, r"add up to 0\.176 s and its step takes nan s"),
        ({"stalls": with_time("prep", value=0.04)}, r"prep \(0\.04 s\) is not within its interval"),
        ({"stalls": with_time("prep", low=0.031)}, r"prep \(0\.03 s\) is not within its interval, 0\.031 to"),
        ({"stalls": with_time("prep", low=None)}, r"is not within its interval, None to"),
        ({"stalls": with_time("fetch", value=math.nan)}, r"fetch \(nan s\)"),
        ({"stalls": GOOD.stalls[::-1]}, r"its stalls \(fetch, prep, .*\) are not those of its rungs"),
        ({"stalls": GOOD.stalls[:-1]}, r"are not those of its rungs \(solo, crowd, node, warm, cold\)"),
        ({"rungs": GOOD.rungs[::-1]}, r"its rungs \(cold, .*\) are not in the ladder's order"),
        ({"rungs": (), "stalls": (), "step_seconds": 0.0}, r"its stalls \(\) are not those of its rungs \(\)"),
    ],
)
def test_one_that_contradicts_itself_is_refused_in_a_sentence_that_names_the_file(fields, says):
    with pytest.raises(
        StashError, match=rf"^the breakdown of run\.stash\.json contradicts itself: .*{says}"
    ) as caught:
        changed(**fields)
    assert "\n" not in str(caught.value)
