"""Taps on samplers: passed on, endless, or a block's own indices."""

from __future__ import annotations

from collections import deque

from stash.measure.agent.wraps.loader import Tap


def test_a_blocks_own_indices_go_first_and_then_nothing_comes():
    tap = Tap([1, 2, 3], iter([1, 2, 3]))
    tap.queue = deque([9, 8])
    assert list(tap) == [9, 8]
    assert tap.take_lists(4) == [1, 2, 3, 1]
    assert Tap([], iter([])).take_lists(3) == []


def test_the_remainder_at_the_end_of_an_epoch_is_passed_over():
    sampler = [[1, 2], [3, 4], [5]]
    assert Tap(sampler, iter(sampler)).take_lists(6) == [[1, 2], [3, 4]] * 3
