"""Slices of training by hand: a rise is told once with its rank and stage, and once more when it is over."""

import numpy as np
import pytest

from stash.monitor.accounting import StepAccount
from stash.monitor.change_test import (
    ChangeTest,
    GrowthTest,
    Slice,
    correct_stalls,
)


def part(
    number,
    *,
    late=None,
    noise=0.0,
    **more,
):
    """A slice of 40 steps of three ranks: 100 ms, of which 60 compute, 10 contention, 20 exchange, 10 input."""
    own = {
        "compute": 0.06,
        "contention": 0.01,
        "transfer": 0.0,
        "exchange": 0.02,
        "input": 0.01,
        "other": 0.005,
    }
    seconds = {name: value + more.get(name, 0.0) for name, value in own.items()}
    seconds["compute"] += noise
    usual = {
        "optimizer": 0.0,
        "between": 0.0,
        "input": 0.01,
        "transfer": 0.0,
        "forward": 0.02,
        "backward": 0.04,
    }
    ranks = {
        rank: {
            stage: value + (late or {}).get(rank, {}).get(stage, 0.0)
            for stage, value in usual.items()
        }
        for rank in range(3)
    }
    found = StepAccount(
        40,
        sum(seconds.values()),
        seconds,
        {},
        ranks,
        dict.fromkeys(range(3), more.get("delay", 0.0)),
        False,
    )
    return Slice(number * 40, number * 40 + 39, found)


def changes_of(parts, test=None):
    test = test or ChangeTest()
    return [change for each in parts for change in test.add_slice(each)]


def steady(count, spread=0.001):
    draw = np.random.default_rng(1)
    return [part(number, noise=float(draw.normal(0, spread))) for number in range(count)]


def test_a_steady_run_raises_nothing():
    assert changes_of(steady(300)) == []


def test_steps_that_only_wait_for_a_core_are_no_reference():
    # GIVEN ranks that are ready to run, and do not, for as long as they would compute
    only = {"contention": -0.01, "exchange": -0.02, "input": -0.01, "delay": 0.06}
    test = ChangeTest()
    assert changes_of([part(n, **only) for n in range(100)], test) == []
    assert not test.reference
    # THEN it is found once they have cores
    assert changes_of(steady(300), test) == []
    assert test.reference


def test_a_rise_is_told_once_with_its_rank_and_once_more_when_it_is_over():
    slow = [part(n, input=0.03, late={1: {"input": 0.03}}) for n in range(20, 40)]
    changes = changes_of([*steady(20), *slow, *(part(n) for n in range(40, 60))])
    assert [(c.stall, c.rank, c.stage, c.step, c.ended) for c in changes] == [
        ("input", 1, "input", 800, False),
        ("input", 1, "input", 1600, True),
    ]
    assert changes[0].seconds == pytest.approx(0.03, abs=0.002)
    assert changes[0].ratio == pytest.approx(1.3, abs=0.02)


def test_an_exchange_that_grows_is_no_ranks():
    (change,) = changes_of([*steady(20), *(part(n, exchange=0.02) for n in range(20, 24))])
    assert (change.stall, change.rank, change.stage) == ("exchange", None, None)


def test_a_stage_that_grows_on_every_rank_is_no_single_ranks():
    everyone = {rank: {"forward": 0.02} for rank in range(3)}
    (change,) = changes_of(
        [*steady(20), *(part(n, compute=0.02, late=everyone) for n in range(20, 24))]
    )
    assert (change.stall, change.rank, change.stage) == ("compute", None, "forward")


@pytest.mark.parametrize("count", [1, 2])
def test_a_hiccup_of_one_or_two_slices_is_no_change(count):
    hiccup = [part(n, input=0.1) for n in range(20, 20 + count)]
    assert changes_of([*steady(20), *hiccup, *(part(n) for n in range(22, 40))]) == []


@pytest.mark.parametrize(
    "later",
    [
        pytest.param({"input": 0.0045}, id="less than a twentieth of the step"),
        pytest.param({"other": 0.5}, id="what lies between steps"),
        # all ranks' threads were kept from a core for as long as their compute is longer
        pytest.param({"compute": 0.03, "delay": 0.03}, id="what other work delays"),
    ],
)
def test_what_is_no_change(later):
    assert changes_of([*steady(20, 0.0), *(part(n, **later) for n in range(20, 40))]) == []


def test_compute_that_grows_is_that_of_all_ranks_and_only_the_rest_is_one_ranks():
    """Rank 1's forward pass takes 20 ms longer, the backward passes of the others 8: all compute for 8 more."""
    late = {0: {"backward": 0.008}, 1: {"forward": 0.02}, 2: {"backward": 0.008}}
    slow = [part(n, compute=0.008, contention=0.012, late=late) for n in range(20, 24)]
    changes = changes_of([*steady(20), *slow])
    assert {(c.stall, c.rank, c.stage) for c in changes} == {
        ("compute", None, None),
        ("contention", 1, "forward"),
    }


def test_a_profile_is_what_it_should_be_from_the_start():
    known = {"compute": 0.06, "contention": 0.0, "exchange": 0.02, "input": 0.01, "step": 0.08}
    (change,) = changes_of(steady(12), ChangeTest(known))
    assert change.stall == "contention"


def test_a_stall_that_the_profile_does_not_know_was_not_zero():
    """Its compute contained the waits for a loader that it did not see; exchange is what has risen."""
    known = {"compute": 0.07, "contention": 0.01, "exchange": 0.01, "step": 0.09}
    assert [change.stall for change in changes_of(steady(12), ChangeTest(known))] == ["exchange"]


def test_a_trend_of_warming_up_is_not_taken_for_steady():
    """Steps that get shorter at first are no reference; the test begins once they do not."""
    test = ChangeTest()
    warming = [part(n, compute=0.1 - 0.01 * n) for n in range(10)]
    assert changes_of([*warming, *steady(20)], test) == []
    assert test.reference["compute"] == pytest.approx(0.06, abs=0.002)


def test_the_sum_of_what_is_tested_is_the_step_without_what_lies_between():
    values = correct_stalls(part(0).account)
    assert values["step"] == pytest.approx(0.1)


def grown(minutes, test):
    """What comes of minutes of six windows; one of each is long, as where a checkpoint is saved."""
    found = None
    for number, between in enumerate(minutes):
        for window in range(6):
            found = (
                test.add_window(100 * number + window, 9.0 if window == 3 else between, 0.1)
                or found
            )
    return found


def test_what_lies_between_steps_and_grows_is_told_once_with_the_minute_that_showed_it():
    test = GrowthTest()
    found = grown([0.010, 0.014, 0.018, 0.024], test)
    assert (found.step, found.before, found.now) == (300, 0.010, 0.024)
    assert grown([0.1, 0.2, 0.3, 0.4], test) is None


@pytest.mark.parametrize(
    "minutes",
    [
        [0.010] * 9,
        [0.010, 0.030, 0.010, 0.030, 0.012],
        [0.0010, 0.0013, 0.0016, 0.0019],
        [0.10, 0.11, 0.12, 0.13],
    ],
    ids=["level", "up-and-down", "little-of-the-step", "little-of-itself"],
)
def test_what_does_not_grow_much_is_not_told(minutes):
    assert grown(minutes, GrowthTest()) is None
