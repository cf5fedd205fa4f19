"""Emulations of zoo models on a GPU, from operations and bytes."""

import pytest

from stash.core.errors import UserError
from stash.lab.testbed.generate import emulate_workload
from stash.lab.zoo.registry import workload


def test_a_zoo_model_on_a_gpu_has_its_bytes_and_its_operations():
    made = emulate_workload("resnet18", 10e12, 1e15, batch=32)
    assert made.bytes == workload("resnet18").gradient_bytes
    # 1.814e9 multiply-adds of a forward pass at 224 pixels (He et al. 2016: 1.8e9), two operations each, thrice.
    assert made.compute_seconds == pytest.approx(3 * 32 * 2 * 1.814e9 / 10e12, rel=0.01)
    slow_memory = emulate_workload("resnet18", 10e12, 100e9, batch=32)
    assert slow_memory.compute_seconds > made.compute_seconds


def test_rates_that_are_not_positive_are_refused():
    with pytest.raises(UserError, match="above 0"):
        emulate_workload("resnet18", 0, 1e12)


def test_half_precision_moves_half_the_bytes_and_exchanges_the_same_gradients():
    def at(value_bytes):
        return emulate_workload("alexnet", 1e30, 1e9, batch=2, value_bytes=value_bytes)

    whole, half = at(4), at(2)  # so many operations per second that only bytes take time
    assert half.bytes == whole.bytes
    assert half.optimizer_seconds == whole.optimizer_seconds
    for one, other in zip(half.layers, whole.layers, strict=True):
        assert one.forward_seconds == pytest.approx(other.forward_seconds / 2)
