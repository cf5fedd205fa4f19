"""Taps on samplers: passed on, endless, or a block's own indices."""

from __future__ import annotations

import time
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


def test_a_block_s_lists_take_as_long_as_the_sampler_does_even_where_there_are_none_left():
    """A sampler draws in each step of the job, a block's lists are drawn before it: prep was half of what it is."""

    def draw():
        while True:
            time.sleep(0.002)
            yield [1]

    tap = Tap(None, draw())
    tap.ask_only_for(tap.take_lists(2)[1:])
    for is_left in (True, False):
        began = time.perf_counter()
        assert next(tap, None) == ([1] if is_left else None)
        assert time.perf_counter() - began >= 0.002


def test_what_a_sampler_takes_to_begin_is_no_draw():
    """A shuffle of all samples belongs to the epoch's start, and steps are not made to wait for it again."""

    def draw():
        time.sleep(0.2)
        while True:
            yield [1]

    tap = Tap(None, draw())
    tap.take_lists(1)
    assert tap.draw_seconds is None
    tap.take_lists(1)
    assert tap.draw_seconds < 0.1
