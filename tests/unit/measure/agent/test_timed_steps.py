"""How many of a job's first steps are timed, once it is seen what they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import _count_fitting


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
