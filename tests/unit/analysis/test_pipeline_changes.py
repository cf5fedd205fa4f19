"""Pipelines with other microbatches and layers: splits against brute force, bubbles against simulated pipelines."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_bubble import ORDERS, Simulated

from stash.analysis.pipeline_changes import (
    StageCost,
    balance_layers,
    divided_again,
    idle_changed,
    idle_of_stages,
    layers_of,
    stage_costs,
)
from stash.analysis.pipeline_schedule import order_of
from stash.core.records.profile import PipelineSchedule

NAMES = {"gpipe": "ScheduleGPipe", "1f1b": "Schedule1F1B"}


def schedule(kind: str, ranks: int, count: int) -> PipelineSchedule:
    return PipelineSchedule(name=NAMES[kind], stages=ranks, ranks=ranks, microbatches=count)


def test_layers_between_ends_take_a_stages_own_time_and_ends_keep_what_is_theirs():
    # layers of the stages between take 10 ms; the last has 20 ms of head besides its 4 layers
    assert stage_costs((0.04, 0.04, 0.06), (4, 4, 4)) == (
        StageCost(0.0, 0.01),
        StageCost(0.0, 0.01),
        StageCost(pytest.approx(0.02), 0.01),
    )
    # of two stages the faster one's layers tell what a layer takes
    assert stage_costs((0.04, 0.08), (4, 4)) == (
        StageCost(0.0, 0.01),
        StageCost(pytest.approx(0.04), 0.01),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.floats(0.1, 2), st.integers(1, 4)), min_size=1, max_size=4
    )
)
def test_no_split_is_faster_than_the_balanced_one(stages):
    costs = [StageCost(fixed, each) for fixed, each, _ in stages]
    layers = [count for _, _, count in stages]
    found = balance_layers(costs, layers)
    total = sum(layers)
    assert sum(found) == total

    def slowest(counts) -> float:
        return max(cost.seconds_for(count) for cost, count in zip(costs, counts, strict=True))

    every = [
        each
        for each in itertools.product(range(1, total + 1), repeat=len(costs))
        if sum(each) == total
    ]
    assert slowest(found) == min(map(slowest, every))


@pytest.mark.parametrize("name", NAMES)
def test_orders_are_those_of_the_schedules(name):
    for ranks, count in itertools.product((1, 2, 5), (1, 3, 8)):
        for rank in range(ranks):
            passes = [
                f"{stage}{kind}{batch}" for stage, kind, batch in ORDERS[name](rank, ranks, count)
            ]
            assert order_of(NAMES[name], rank, ranks, count).split() == passes


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(sorted(NAMES)),
    st.integers(2, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.floats(1, 3),
)
def test_microbatches_change_the_bubble_as_a_pipeline_cut_so_does(kind, ranks, count, more, slow):
    before = Simulated(kind, ranks, count, {1: slow})
    after = Simulated(kind, ranks, count * more, {1: slow})
    found = idle_changed(before.rows(), schedule(kind, ranks, count), count * more)
    # the other simulation's passes have as many samples as before: of a step of as many, it waits 1 / more
    assert found == pytest.approx(after.waited / more - before.waited, abs=1e-9)


def test_a_stage_that_gives_layers_away_makes_the_others_idle_less():
    # test_bubble's: stage 1 twice as slow of 2, 4 microbatches, idles 90 ms; as fast as the other it idles 30
    rows = Simulated("1f1b", ranks=2, count=4, slow={1: 2.0}).rows()
    how = schedule("1f1b", 2, 4)
    assert idle_changed(rows, how, times={1: 0.5}) == pytest.approx(0.03 - 0.09)
    assert idle_changed(rows, how) == 0.0
    assert idle_changed(rows, how, microbatches=4) == 0.0


def test_of_other_schedules_only_the_measured_microbatches_can_be_played():
    rows = Simulated("1f1b", ranks=2, count=4, slow={}).rows()
    theirs = PipelineSchedule(
        name="ScheduleInterleavedZeroBubble", stages=2, ranks=2, microbatches=4
    )
    assert idle_changed(rows, theirs, microbatches=8) is None
    assert idle_changed(rows, theirs, microbatches=4) == 0.0


@pytest.mark.parametrize("name", ["Schedule1F1B", "ScheduleGPipe"])
@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_stages_idle_until_the_first_microbatch_and_after_the_last_and_wait_for_the_slowest(
    name, count
):
    for seconds in ((3.0, 3.0), (2.0, 5.0, 3.0), (1.0, 2.0, 2.0, 4.0)):
        # all stages once, and the slowest for every further microbatch; of few some of that goes side by side
        most = (sum(seconds) + (count - 1) * max(seconds)) / count - sum(seconds) / len(seconds)
        found = idle_of_stages(seconds, name, count)
        assert found <= most + 1e-9
        assert found == pytest.approx(most, rel=0.25 if 1 < count < 16 else 0.1)
    assert idle_of_stages((4.0, 4.0), name, count) == pytest.approx(4.0 / count)


def test_stages_that_share_layers_again_keep_what_their_ends_hold():
    costs = stage_costs((4.0, 6.0, 9.0), (2, 3, 3))
    assert divided_again(costs, 8, 3) == pytest.approx((4.0, 6.0, 9.0))
    assert divided_again(costs, 8, 4) == pytest.approx((4.0, 4.0, 4.0, 7.0))
    assert divided_again(costs, 8, 2) == pytest.approx((8.0, 11.0))


def test_layers_are_known_of_all_stages_or_of_none():
    rows = Simulated("gpipe", ranks=2, count=1, slow={}).rows()
    counted = [replace(row, layers=(3 + row.rank,)) for row in rows]
    assert layers_of(counted) == (3, 4)
    assert layers_of([counted[0], rows[1]]) == ()
