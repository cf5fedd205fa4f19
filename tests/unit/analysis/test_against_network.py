"""Findings between machines: slow nodes, one flow, claims."""

from __future__ import annotations

import pytest
from probe_builder import GBIT
from readings import cluster, found

from stash.core.records.host import Nic


@pytest.mark.parametrize("slow", [0, 1, 2])
def test_the_node_whose_every_stream_is_slow_is_named(slow):
    (text,) = found(*cluster(lambda a, b: 0.5 if slow in (a, b) else 1.0))["uneven-nodes"]
    assert text.startswith(f"node {slow} (n{slow}) has a slower network than the others: 10.")


def test_even_nodes_are_not_uneven_and_one_flow_is_compared_with_eight():
    named = found(*cluster(lambda a, b: 1.0))
    assert set(named) == {"one-flow"}
    assert "one TCP flow reaches 9." in named["one-flow"][0]
    assert "8 reach 21." in named["one-flow"][0]


def test_an_interfaces_claim_counts_only_with_hardware_behind_it():
    real = (Nic(name="eth0", bytes_per_second=25 * GBIT, driver="ena"),)
    bridge = (Nic(name="docker0", bytes_per_second=25 * GBIT),)
    assert "claims 25 Gbit/s" in found(*cluster(lambda a, b: 1.0, nics=real))["nic-claim"][0]
    assert "nic-claim" not in found(*cluster(lambda a, b: 1.0, nics=bridge))
    modest = (Nic(name="eth0", bytes_per_second=10 * GBIT, driver="virtio_net"),)
    assert "means nothing" in found(*cluster(lambda a, b: 1.0, nics=modest))["nic-claim"][0]
