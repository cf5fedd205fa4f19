"""Blocks fit the budget, whatever a step takes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stash.core.ladder import NAMES, round_of_visits
from stash.measure.agent.runner.block_plan import MAX_STEPS, BlockSize, StepPace, plan_blocks

VISITS = round_of_visits(NAMES, 0, 4)


def test_blocks_are_short_so_that_there_are_many_rounds():
    planned = plan_blocks(VISITS, StepPace(0.01), budget=60)
    assert planned.replay == planned.data == BlockSize(1, 15)
    assert planned.round_seconds == pytest.approx(len(VISITS) * 16 * 0.01)
    assert planned.alone_rounds == 2
    assert plan_blocks(VISITS, StepPace(0.12), budget=60).replay == BlockSize(0, 2)


def test_what_exchanges_settles_since_connections_that_were_idle_begin_slowly():
    planned = plan_blocks(VISITS, StepPace(0.12), budget=60)
    sizes = {visit.rung: planned.block_size(visit) for visit in VISITS}
    assert sizes["solo"] == sizes["crowd"] == BlockSize(0, 2)
    assert sizes["node"] == sizes["cluster"] == BlockSize(1, 2)


def test_blocks_are_long_beside_what_ranks_need_to_agree():
    assert plan_blocks(
        VISITS, StepPace(0.05, agreement_seconds=0.05), budget=60
    ).replay == BlockSize(1, 10)


def test_data_blocks_measure_whole_bursts_of_the_workers():
    planned = plan_blocks(VISITS, StepPace(0.1, workers=4, accelerator=True), budget=60)
    assert planned.replay == BlockSize(2, 5)
    assert planned.data == BlockSize(4, 4)
    assert plan_blocks(
        VISITS, StepPace(0.1, workers=4, batches_per_step=2), budget=60
    ).data == BlockSize(2, 2)


def test_data_blocks_are_run_in_until_the_workers_have_filled_their_queue():
    planned = plan_blocks(VISITS, StepPace(0.1, workers=4), budget=60)
    assert planned.data.settle == 4
    # GIVEN eight batches made ahead by workers who have little to do
    assert planned.set_settle(planned.settle_until_full(busy=0.1, queue=8)).data == BlockSize(1, 4)
    assert planned.settle_until_full(busy=0.25, queue=8) == 3
    # THEN it takes longer the less they get ahead, and where they do not a burst is enough
    assert (
        planned.settle_until_full(busy=0.9, queue=8)
        == planned.settle_until_full(busy=1.2, queue=8)
        == 4
    )


def test_a_loop_of_few_steps_has_short_blocks():
    assert plan_blocks(
        VISITS, StepPace(0.01, workers=8), budget=60, most_steps=3
    ).data == BlockSize(3, 3)


def test_replays_settle_after_the_pause_in_which_their_batches_were_read():
    """A step of 60 ms that waits for 36: 24 steps' worth is read before replays, a tenth of it is three steps."""
    visits = round_of_visits(("solo", "warm", "cold"), 0, 1)
    quick, slow = (
        plan_blocks(visits, StepPace(0.06, workers=4, reading_seconds=wait, ahead=8), budget=30)
        for wait in (0.001, 0.036)
    )
    assert (quick.replay, slow.replay) == (BlockSize(0, 2), BlockSize(3, 2))
    assert slow.data == quick.data


def test_steps_of_seconds_are_measured_one_by_one():
    planned = plan_blocks(VISITS, StepPace(3.0, workers=8), budget=40)
    assert (planned.replay, planned.data) == (BlockSize(0, 1), BlockSize(1, 1))
    assert planned.alone_rounds == 1
    # Ranks left the barrier together, and step as they do by themselves only from the second step on.
    assert {planned.block_size(visit) for visit in VISITS if visit.rung in ("node", "cluster")} == {
        BlockSize(2, 1)
    }


def test_what_is_expected_counts_what_is_read_without_being_timed():
    quick, slow = (
        plan_blocks(VISITS, StepPace(3.0, 2, reading_seconds=wait, ahead=4), budget=40)
        for wait in (0.0, 2.0)
    )
    reading = [visit for visit in VISITS if visit.reads_data]
    assert quick.expected_seconds == quick.round_seconds
    # a step that waits for two of its three seconds takes one without reading
    replayed = sum(slow.block_size(visit).total_steps for visit in VISITS if visit not in reading)
    assert slow.round_seconds == replayed * 1.0 + len(reading) * slow.data.total_steps * 3.0
    assert slow.expected_seconds == slow.round_seconds + 2.0 * (
        slow.data.total_steps + 4 * len(reading)
    )


def test_where_not_one_round_fits_steps_without_workers_are_not_run_in():
    assert plan_blocks(VISITS, StepPace(12.0), budget=15).data == BlockSize(0, 1)
    assert plan_blocks(VISITS, StepPace(12.0, workers=2), budget=15).data == BlockSize(1, 1)


def test_where_no_three_rounds_fit_one_of_whole_bursts_is_run():
    """Of a part of a burst nothing is waited for: four workers of 2 s looked like a step of 2 ms."""
    planned = plan_blocks(VISITS, StepPace(1.0, workers=4), budget=30)
    assert planned.data == planned.cold == BlockSize(4, 4)


def test_steps_that_wait_for_workers_are_measured_in_whole_bursts_however_long():
    """Four workers of 8 s in a budget of 10 s looked like a step of 1 ms."""
    pace = StepPace(2.0, workers=4, reading_seconds=0.9, ahead=8)
    assert plan_blocks(VISITS, pace, budget=10).data == BlockSize(4, 4)
    # GIVEN workers that training does not wait for
    kept_up = StepPace(2.0, workers=4, reading_seconds=0.1, ahead=8)
    assert plan_blocks(VISITS, kept_up, budget=10).data == BlockSize(1, 1)


@given(st.floats(1e-4, 20), st.integers(0, 16), st.integers(1, 8), st.booleans(), st.floats(5, 600))
def test_three_rounds_fit_or_blocks_cannot_be_shorter(
    step: float, workers: int, micro: int, accelerator: bool, budget: float
):
    planned = plan_blocks(VISITS, StepPace(step, workers, micro, accelerator), budget)
    burst = max(1, math.ceil(min(workers, 8) / micro))
    is_shortest = planned.replay.steps == 1 and planned.data.steps in (1, burst)
    assert 3 * planned.round_seconds <= 0.8 * budget or is_shortest
    assert 1 <= planned.replay.steps <= MAX_STEPS
