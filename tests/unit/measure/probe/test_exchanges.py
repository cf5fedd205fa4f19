"""All-reduce by itself, and measurements repeated within a share of the time."""

import pytest
import torch
from manual_clock import Clock

from stash.core.records.host import Timing
from stash.measure.probe import exchanges
from stash.measure.probe.exchanges import equal_parts, repeat


class Quiet(exchanges.Group):
    """A group of one that takes 100 µs and a second for every 100 MB, on its own clock."""

    def slowest(self, values):
        return values

    def time_all_reduce(self, tensor, calls):
        cost = 1e-4 + 4 * tensor.numel() / 100e6
        assert isinstance(self.clock, Clock)
        self.clock.act(cost * calls)
        return cost


def _curve(seconds):
    clock = Clock()
    return exchanges.time_curve(
        Quiet(None, None, 2, torch.device("cpu"), clock), seconds
    ), clock.now


def test_messages_grow_until_the_next_would_not_fit_into_the_share():
    long, spent = _curve(60.0)
    assert [timing.bytes for timing in long] == list(exchanges.SIZES)
    assert spent < 60.0
    short, spent = _curve(2.0)
    assert [timing.bytes for timing in short] == list(exchanges.SIZES[: len(short)])
    assert 1 << 20 <= short[-1].bytes < exchanges.SIZES[-1]
    assert spent < 2.0
    assert all(len(timing.seconds) >= 5 for timing in short)
    assert short[0].seconds[0] == pytest.approx(1e-4 + 1024 / 100e6)


def test_the_first_repetition_warms_up_and_the_others_fill_the_share():
    clock = Clock()
    costs = iter([9.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
    assert repeat(lambda: clock.act(next(costs)), 14, least=3, clock=clock) == (1.0, 2.0, 1.0, 2.0)


def test_a_slow_repetition_is_still_made_the_least_number_of_times_and_a_fast_one_not_for_ever():
    clock = Clock()
    assert repeat(lambda: clock.act(100.0), 1, least=3, clock=clock) == (100.0,) * 3
    assert len(repeat(lambda: clock.act(1e-9), 1, most=50, clock=clock)) == 50


def test_a_transfer_is_cut_into_parts_of_equal_bytes():
    marks = [(10.0, 100), (11.0, 110), (13.0, 120)]
    assert equal_parts(marks, 2) == Timing(bytes=10, seconds=(1.0, 2.0))
    assert equal_parts(marks, 4) == Timing(bytes=5, seconds=(0.5, 0.5, 1.0, 1.0))


@pytest.mark.parametrize("marks", [[], [(0.0, 5)], [(0.0, 5), (1.0, 5)], [(0.0, 0), (1.0, 1)]])
def test_a_transfer_of_nothing_has_no_repetitions(marks):
    assert equal_parts(marks, 2) is None
