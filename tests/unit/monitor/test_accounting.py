"""Exposed stages by hand: who is late is named, what is hidden is no stall, and everything adds up exactly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stash.measure.protocol.stamped import StampedStep, StepStage
from stash.monitor.accounting import (
    STAGES,
    account_cycles,
    account_undisturbed,
    find_stragglers,
    join_cycles,
)
from stash.monitor.change_test import Slice
from stash.monitor.window_lines import window_of


def step(number, **seconds):
    stages = tuple(seconds.get(stage.name.lower(), 0.0) for stage in StepStage)
    return StampedStep(number, 0.0, sum(stages), stages, 0.0, 0.0, 0.0, 0, (0.0,) * 4)


def accounted(*ranks):
    """Of ranks that do the same in every step."""
    rows = {
        rank: [step(number, **seconds) for number in (1, 2, 3)]
        for rank, seconds in enumerate(ranks)
    }
    _, seconds, delays = join_cycles(rows)
    return account_cycles(sorted(rows), seconds, delays[:, :, 0])


def test_a_rank_that_waits_for_input_is_named_and_what_the_others_wait_is_no_exchange():
    late = {"input": 0.5, "forward": 1.0, "backward": 2.0, "exchange": 0.25}
    other = {"input": 0.1, "forward": 1.0, "backward": 2.0, "exchange": 0.65}
    found = accounted(other, other, late, other)
    assert found.seconds == pytest.approx(
        {
            "compute": 3.0,
            "contention": 0.0,
            "transfer": 0.0,
            "exchange": 0.25,
            "input": 0.5,
            "other": 0.0,
        }
    )
    assert found.set_by["input"] == 2
    assert [(each.rank, each.stage) for each in find_stragglers(found)] == [(2, "input")]


def test_copies_that_are_hidden_by_another_rank_were_seen_all_the_same():
    found = accounted({"input": 0.5, "forward": 1.0}, {"transfer": 0.2, "forward": 1.0})
    part = Slice(2, 3, found, 0.0)
    assert window_of(part, "cuda").stalls["transfer"] == 0.0
    assert window_of(part, "cpu").stalls["transfer"] is None
    assert (
        window_of(Slice(2, 3, accounted({"forward": 1.0}), 0.0), "cuda").stalls["transfer"] is None
    )


def test_a_slow_backward_pass_is_contention_though_all_backward_passes_last_as_long():
    found = accounted(
        {"backward": 0.041, "exchange": 0.0626}, {"backward": 0.101, "exchange": 0.0026}
    )
    assert found.seconds["compute"] == pytest.approx(0.041)
    assert found.seconds["contention"] == pytest.approx(0.060)
    assert found.seconds["exchange"] == pytest.approx(0.0026)


def test_a_slow_optimizer_is_no_exchange_of_the_next_step():
    """Rank 1 steps its optimizer 0.3 s later; rank 0 waits for it in the next exchange."""
    found = accounted(
        {"optimizer": 0.1, "forward": 1.0, "exchange": 0.4},
        {"optimizer": 0.4, "forward": 1.0, "exchange": 0.1},
    )
    assert found.seconds["exchange"] == pytest.approx(0.1)
    assert found.seconds["contention"] == pytest.approx(0.3)


def test_a_second_straggler_behind_the_first_is_told():
    found = accounted(
        {"forward": 1.0}, {"forward": 1.0}, {"forward": 2.0}, {"forward": 1.5}, {"forward": 1.0}
    )
    assert [(each.rank, each.seconds) for each in find_stragglers(found)] == [(2, 1.0), (3, 0.5)]


def test_waits_inside_collectives_in_the_middle_make_it_ambiguous():
    assert accounted(
        {"forward": 1.0, "collective": 0.5}, {"forward": 1.0, "collective": 0.5}
    ).ambiguous
    assert not accounted(
        {"forward": 1.0, "collective": 0.0}, {"forward": 1.0, "collective": 0.5}
    ).ambiguous


def test_only_steps_that_every_rank_has_whole_are_joined():
    rows = {
        0: [step(n, optimizer=n) for n in (1, 2, 3, 5)],
        1: [step(n, optimizer=n) for n in (2, 3, 4, 5)],
    }
    numbers, seconds, _ = join_cycles(rows)
    assert numbers == [3]
    assert seconds[0, :, 0].tolist() == [2, 2]


@given(arrays(np.float64, (3, 4, len(STAGES)), elements=st.floats(0, 10)))
def test_exposed_stages_are_never_negative_and_add_up_to_the_longest_rank(
    seconds,
):
    found = account_cycles(range(4), seconds, np.zeros((3, 4)))
    assert all(found.seconds[name] >= 0 for name in ("transfer", "exchange", "input", "other"))
    assert found.step_seconds == pytest.approx(seconds.sum(axis=2).max(axis=1).mean())
    assert sum(found.seconds.values()) == pytest.approx(found.step_seconds)


def test_what_strangers_cost_is_disturbed_and_nobodys_fault():
    seconds = np.zeros((1, 2, len(STAGES)))
    seconds[0, :, STAGES.index(StepStage.FORWARD)] = 1.0, 1.5
    seconds[0, :, STAGES.index(StepStage.EXCHANGE)] = 0.6, 0.1
    lost = np.zeros_like(seconds)
    lost[0, 1, STAGES.index(StepStage.FORWARD)] = 0.4
    found = account_undisturbed((0, 1), seconds, np.zeros((1, 2)), lost)
    assert found.step_seconds == pytest.approx(1.6)
    # without them rank 1 had come after 1.1 s, and 0.1 s of the exchange were left then as now
    calm = {"compute": 1.0, "contention": 0.1, "exchange": 0.1, "disturbed": 0.4}
    assert {name: found.seconds[name] for name in calm} == pytest.approx(calm)
    assert sum(found.seconds.values()) == pytest.approx(found.step_seconds)
    assert [(late.rank, late.stage) for late in find_stragglers(found)] == [(1, "forward")]
    assert find_stragglers(found)[0].seconds == pytest.approx(0.1)
