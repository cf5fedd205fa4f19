"""Queues: who runs, on which type, by hand."""

import numpy as np
import pytest
from schedules import demand

from stash.schedule.allocation import (
    choose_types,
    fifo_aware,
    order_turns,
    priorities,
    shortest_remaining,
)


def test_aware_fifo_takes_the_fastest_free_type():
    here = demand([[1, 3], [1, 3], [1, 3]], [1, 1])
    assert fifo_aware(here).x.tolist() == [[0, 1], [1, 0], [0, 0]]


def test_shortest_remaining_time_goes_by_each_jobs_fastest_type():
    here = demand([[1], [10], [1]], [1], left=[50, 400, 41])
    assert shortest_remaining(here).x.ravel().tolist() == [0, 1, 0]


def test_a_round_goes_by_shares_over_time_received():
    x = np.array([[0.5, 0.0], [0.5, 0.2]])
    received = np.array([[180.0, 0.0], [0.0, 0.0]])
    priority = priorities(x, received, 360.0)
    assert priority[0, 0] == pytest.approx(0.5 / 360)
    assert priority[1] == pytest.approx([0.5 / 180, 0.2 / 180])
    order = order_turns(priority, np.ones((2, 2), dtype=bool), np.zeros((2, 2)))
    assert order[:3].tolist() == [2, 0, 3]
    assert choose_types(order, np.array([1, 1]), [1, 1]) == {1: 0, 0: 1}
    assert choose_types(order, np.array([2, 1]), [1, 1]) == {1: 0}
