"""The curve of an all-reduce, on a group that takes a known time."""

from __future__ import annotations

import pytest
import torch
from told_clock import Clock

from stash.core.records.host import Timing
from stash.measure.probe import exchanges


class Quiet(exchanges.Group):
    """A group of one that takes 100 µs and a second for every 100 MB, on its own clock."""

    def slowest(self, values: list[float]) -> list[float]:
        return values

    def timed(self, tensor: torch.Tensor, calls: int) -> float:
        cost = 1e-4 + 4 * tensor.numel() / 100e6
        assert isinstance(self.clock, Clock)
        self.clock.act(cost * calls)
        return cost


def _curve(seconds: float) -> tuple[tuple[Timing, ...], float]:
    clock = Clock()
    return exchanges.curve(Quiet(None, None, 2, torch.device("cpu"), clock), seconds), clock.now


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
