"""What a choice risks, by pencil: two bills in two kinds of draws, and what it is worth to know one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stash.plan.records import Goal, TrainingWork
from stash.plan.regret import chances, expected_saving, information_value, measure_risk

CHEAP = Goal(work=TrainingWork(samples=1, text="some"))
FAST = CHEAP.model_copy(update={"budget_dollars": 100.0})
BILLS = st.lists(st.lists(st.floats(1, 100), min_size=64, max_size=64), min_size=2, max_size=5)


def bill(dollars, seconds=None):
    """Only what is compared of a candidate."""
    drawn = SimpleNamespace(dollars=np.array(dollars), seconds=np.array(seconds or dollars))
    found: Any = SimpleNamespace(billed=drawn, objective=drawn.dollars)
    return found


SURE, GAMBLE = bill([10.0] * 64, [9.0, 1.0, 1.0, 1.0] * 16), bill([6.0, 16.0] * 32, [2.0] * 64)
"""$10 always; $6 or $16, $11 in the mean."""


def test_each_is_the_cheapest_in_half_of_the_draws_and_guessing_costs_two_dollars():
    both = (SURE, GAMBLE)
    assert chances(both).tolist() == [0.5, 0.5]
    found = measure_risk(CHEAP, SURE, both)
    assert (found.best, found.unit, found.among) == (0.5, "dollars", 2)
    assert found.regret.value == 2.0  # 10 - 6 in half of the draws
    assert measure_risk(CHEAP, GAMBLE, both).regret.value == 3.0  # 16 - 10 in half of them


def test_where_only_a_budget_is_said_time_is_what_is_compared():
    assert measure_risk(FAST, SURE, (SURE, GAMBLE)).unit == "seconds"


def test_those_that_are_equal_share_the_chance():
    assert chances((SURE, SURE, GAMBLE)).tolist() == [0.25, 0.25, 0.5]


def test_knowing_the_gamble_is_worth_two_dollars_and_knowing_the_sure_one_nothing():
    both = (SURE, GAMBLE)
    # 10 before; 6 or 10 after
    assert information_value(both, GAMBLE.billed.dollars) == pytest.approx(2.0)
    assert information_value(both, SURE.billed.dollars) == 0.0
    # tells nothing of either
    assert information_value(both, np.array([1.0, 1.0, 2.0, 2.0] * 16)) == 0.0


def test_knowing_whether_a_cheaper_one_keeps_the_deadline_saves_where_it_does():
    in_time = GAMBLE.billed.dollars < 10  # in half of the draws, where it is $4 cheaper
    assert expected_saving(SURE.billed.dollars, GAMBLE.billed.dollars, in_time) == pytest.approx(
        2.0
    )
    assert expected_saving(SURE.billed.dollars, GAMBLE.billed.dollars, ~in_time) == 0.0


@settings(max_examples=50, deadline=None)
@given(BILLS)
def test_no_measurement_saves_more_than_knowing_everything(bills):
    every = [bill(each) for each in bills]
    best = min(every, key=lambda each: float(each.billed.dollars.mean()))
    whole = measure_risk(CHEAP, best, every)
    assert whole.regret.value >= 0
    assert sum(chances(every)) == pytest.approx(1)
    for each in every:
        # A line fitted to draws errs by what a few of them do to it, and never gains more than their spread.
        assert (
            0
            <= information_value(every, each.billed.dollars)
            <= sum(float(one.billed.dollars.std()) for one in every)
        )
