"""Values that become denormal: counted where a tensor loses many, on float32 of CPUs, and flushed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stash.measure.agent.runner import tiny_values
from stash.measure.agent.runner.tiny_values import TinyValues


@pytest.fixture(autouse=True)
def unflushed() -> Iterator[None]:
    torch.set_flush_denormal(False)
    yield
    torch.set_flush_denormal(False)


def test_it_is_known_whether_the_script_flushes_itself() -> None:
    assert not tiny_values.flush()
    assert float(torch.full((1,), 2e-39) * 1) == 0
    assert tiny_values.flush()


def test_values_that_decay_are_counted_flushed_or_not() -> None:
    trace, weight = torch.ones(100), torch.ones(100)
    found = TinyValues([trace, weight])
    assert found.count_lost() == 0
    trace[:40] *= 1e-39
    weight[:5] = 0
    assert found.count_lost() == 40
    tiny_values.flush()
    trace *= 1
    assert found.count_lost() == 40


def test_values_that_are_denormal_already_are_counted_whether_arithmetic_sees_them_or_not() -> None:
    trace = torch.full((100,), 2e-39)
    tiny_values.flush()
    assert TinyValues([trace]).count_lost() == 100


def test_zeros_of_before_small_and_foreign_tensors_are_not_counted() -> None:
    sparse, small, whole = torch.zeros(100), torch.ones(8), torch.ones(100, dtype=torch.float64)
    found = TinyValues([sparse, small, whole])
    for tensor in (small, whole):
        tensor.zero_()
    assert found.count_lost() == 0
    del sparse
    assert found.count_lost() == 0
