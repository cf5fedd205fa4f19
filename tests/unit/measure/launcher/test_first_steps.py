"""First steps as rounds: their own steps, in order, and of what a block adds up to each its part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block
from stash.measure.launcher.first_steps import RUNG, cut_into_rounds

STEPS = 13
FIRST = Block(
    round=0,
    rung=UNTOUCHED.name,
    rank=0,
    steps=STEPS,
    seconds=sum(range(STEPS)),
    step_seconds=tuple(map(float, range(STEPS))),
    samples=4 * STEPS,
    step_samples=(4,) * STEPS,
    wait_seconds=6.5,
    step_waits=(0.5,) * STEPS,
    cpu_seconds=26.0,
    switches=26,
    stage_seconds={"input": 6.5},
)


def test_steps_are_cut_into_rounds_of_equally_many_and_the_last_are_left_over():
    rounds = cut_into_rounds([FIRST])
    assert [(each.round, each.rung, each.steps) for each in rounds] == [
        (number, RUNG, 3) for number in range(4)
    ]
    assert rounds[1].step_seconds == (3.0, 4.0, 5.0)
    assert (rounds[1].seconds, rounds[1].samples) == (12.0, 12)
    assert (rounds[1].wait_seconds, rounds[1].step_waits) == (None, ())  # the ledger has them
    assert rounds[1].cpu_seconds == pytest.approx(6.0)
    assert rounds[1].switches == 6
    assert rounds[1].stage_seconds["input"] == pytest.approx(1.5)


def test_ranks_have_the_same_rounds_though_one_took_fewer_steps():
    other = replace(FIRST, rank=1, steps=9, step_seconds=FIRST.step_seconds[:9], seconds=36.0)
    assert [(each.round, each.rank) for each in cut_into_rounds([FIRST, other])] == [
        (number, rank) for number in range(3) for rank in (0, 1)
    ]


@pytest.mark.parametrize("steps", [0, 8])
def test_of_too_few_steps_there_are_no_rounds(steps):
    few = replace(FIRST, steps=steps, step_seconds=FIRST.step_seconds[:steps])
    assert cut_into_rounds([few]) == []
    assert cut_into_rounds([replace(FIRST, rung="warm")]) == []
