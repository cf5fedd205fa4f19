"""Blocks fit the budget, whatever a step takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.base.ladder import NAMES, round_of_visits
from stash.measure.agent.climb.plan import MOST_STEPS, BlockSize, StepPace, plan

VISITS = round_of_visits(NAMES, 0, 4)


def test_short_steps_are_measured_in_blocks_of_half_a_second():
    planned = plan(VISITS, StepPace(0.01), budget=60)
    assert planned.replay == BlockSize(1, 50)
    assert planned.round_seconds == pytest.approx(len(VISITS) * 51 * 0.01)
    assert planned.alone_rounds == 2


def test_data_blocks_measure_whole_bursts_of_the_workers():
    planned = plan(VISITS, StepPace(0.1, workers=4, accelerator=True), budget=60)
    assert planned.replay == BlockSize(2, 5)
    assert planned.data == BlockSize(4, 4)
    assert plan(VISITS, StepPace(0.1, workers=4, batches_per_step=2), budget=60).data == BlockSize(2, 4)


def test_a_loop_of_few_steps_has_short_blocks():
    assert plan(VISITS, StepPace(0.01, workers=8), budget=60, most_steps=3).data == BlockSize(3, 3)


def test_steps_of_seconds_are_measured_one_by_one():
    planned = plan(VISITS, StepPace(3.0, workers=8), budget=40)
    assert (planned.replay, planned.data) == (BlockSize(1, 1), BlockSize(1, 1))
    assert planned.alone_rounds == 1


@given(st.floats(1e-4, 20), st.integers(0, 16), st.integers(1, 8), st.booleans(), st.floats(5, 600))
def test_three_rounds_fit_or_blocks_cannot_be_shorter(
    step: float, workers: int, micro: int, accelerator: bool, budget: float
):
    planned = plan(VISITS, StepPace(step, workers, micro, accelerator), budget)
    assert 3 * planned.round_seconds <= 0.8 * budget or planned.replay == planned.data == BlockSize(1, 1)
    assert 1 <= planned.replay.steps <= MOST_STEPS
