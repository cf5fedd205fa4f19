"""What is left of a search's time, by pencil."""

import pytest

from stash.fix.time_budget import TimeBudget


def test_launches_take_what_they_took_on_average():
    budget = TimeBudget(30.0, 0.01, 4.0, launches=(8.0, 12.0))
    assert budget.has_room(3)
    assert not budget.has_room(3, 0.1)


@pytest.mark.parametrize(
    ("rung", "step", "block"),
    [
        ({}, 0.01, 0.75),
        ({"loader": {}}, 0.01, 1.5),
        ({"loader": {"num_workers": 16}}, 0.1, 3.2),  # twice as many steps as workers
    ],
)
def test_a_block_is_as_long_as_its_steps_or_as_a_full_queue_takes(rung, step, block):
    budget = TimeBudget(100.0, step, 4.0)
    typed = max(0.75, 16 * step)
    assert budget.turns_seconds([rung]) == pytest.approx(4.0 + 1.3 * 3 * (typed + block))


@pytest.mark.parametrize(
    ("left", "rungs", "fit"),
    [
        # the start, and 1.3 * 3 * (0.75 s + 1.5 s each), in two fifths of the time
        (100.0, 8, 5),
        (100.0, 1, 0),
        (20.0, 8, 2),  # of two alone in all of it
        (18.0, 8, 0),
    ],
)
def test_as_many_take_turns_as_fit_into_a_share_of_the_time(left, rungs, fit):
    assert TimeBudget(left, 0.01, 4.0).count_in_turns([{"loader": {}}] * rungs) == fit
