"""How many of a job's first steps are timed, once it is seen what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import (
    _count_fitting,
    delays_within,
    without_preemption,
)


class Ranks:
    """This one and another, which has room for so many steps."""

    def __init__(self, other: int) -> None:
        self._other = other

    def agree(self, report: int, decide: Callable[[list[Any]], int]) -> int:
        return decide([report, self._other])


@pytest.mark.parametrize(
    ("seconds", "other", "steps"),
    [(9 * 0.5, 400, 30), (9 * 0.5, 12, 12), (9 * 4.0, 400, 11), (0.0, 400, 400)],
    ids=["as-long-as-seen", "fewest-of-any-rank", "one-more-at-least", "no-time"],
)
def test_steps_that_take_long_are_fewer(seconds: float, other: int, steps: int) -> None:
    assert _count_fitting(cast(OwnRank, Ranks(other)), 15.0, 10, seconds) == steps


def test_a_wait_for_a_core_within_stashs_own_work_is_subtracted_once():
    # 24 ms without a core are in the delays of that step, too
    own = without_preemption((30e-6, 24.03e-3, 40e-6))
    assert own == (30e-6, 40e-6, 40e-6)
    assert without_preemption((24.03e-3, 30e-6)) == (30e-6, 30e-6)
    assert without_preemption((2e-3, 5e-3, 3e-3)) == (2e-3, 5e-3, 3e-3)  # it just varies


def test_delays_of_what_is_no_part_of_a_step_are_none_of_its():
    assert delays_within((0.010, 0.012), (0.1, 0.030), (0.0, 0.090)) == pytest.approx(
        (0.010, 0.003)
    )
