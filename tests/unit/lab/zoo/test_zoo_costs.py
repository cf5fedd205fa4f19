"""The costs of a sample are those of the models."""

import pytest

from stash.lab.testbed.generate import emulate_workload
from stash.lab.zoo.registry import WORKLOADS


@pytest.mark.parametrize("name", ["alexnet", "m5", "shufflenet_v2_x0_5"])
def test_a_device_that_only_computes_takes_as_long_as_the_operations_say(name):
    flops_alone = emulate_workload(name, 1e12, 1e30, batch=2)
    assert flops_alone.compute_seconds == pytest.approx(
        3 * 2 * WORKLOADS[name].forward_flops / 1e12, rel=1e-3
    )


@pytest.mark.parametrize("name", ["alexnet", "shufflenet_v2_x0_5"])
def test_a_device_that_only_moves_takes_as_long_as_the_bytes_of_another_sample_say(
    name,
):
    two, one = (emulate_workload(name, 1e30, 1e12, batch=batch) for batch in (2, 1))
    more = two.compute_seconds - one.compute_seconds
    assert more == pytest.approx(3 * WORKLOADS[name].moved_bytes / 1e12, rel=1e-3)
