"""Targets: what a profile, a probe and a data sheet tell of links, by hand, and what they leave unknown."""

import pytest
from probe_builder import gpus, host, links, probe, ring, stream
from profile_builder import build

from stash import catalog
from stash.core.measured import Collective
from stash.predict import cluster
from stash.predict.cluster_sources import (
    network_rate,
    target_of_instance,
    target_of_probe,
    target_of_profile,
)
from stash.predict.collective_times import fabric_of
from stash.predict.draws import Draws
from stash.predict.draws import given_quantity as wished


def exchanging(*runs, ranks=4, nodes=2, buckets=(50, 50)):
    rungs = {"solo": [0.1, 0.1], "crowd": [0.1, 0.1], "node": [0.12, 0.12], "cluster": [0.2, 0.2]}
    return build(
        rungs, ranks=ranks, nodes=nodes, collectives=runs, workload={"bucket_bytes": buckets}
    )


def test_a_profile_s_own_exchange_tells_rates_and_hops():
    found = target_of_profile(
        exchanging(
            Collective(scope="node", ranks=2, bytes=100, seconds=3.0, latency_seconds=1.0),
            Collective(scope="world", ranks=4, bytes=100, seconds=13.0, latency_seconds=10.0),
        )
    )
    assert (found.nodes, found.devices, found.backend) == (2, 2, "gloo")
    # Inside: 2·1/2 · 100 bytes in 2 s; a bucket's latency of 0.5 s is 2 hops. Between: 2·3/4 · 100 in 3 s.
    assert found.inside.bytes_per_second.value == pytest.approx(50)
    assert found.inside.latency_seconds.value == pytest.approx(0.25)
    assert found.network.bytes_per_second.value == pytest.approx(50)
    # A bucket's 5 s less 4 hops inside of 0.25 s leave 4 s for 2 hops between.
    assert found.network.latency_seconds.value == pytest.approx(2.0)
    assert found.network.bytes_per_second.origin == "measured"
    assert found.network.bytes_per_second.as_of == "2026-11-20"


def test_the_path_of_a_profile_takes_what_its_exchange_took():
    import numpy as np

    from stash.predict.collective_times import all_reduce

    run = Collective(scope="world", ranks=4, bytes=100, seconds=13.0, latency_seconds=10.0)
    node = Collective(scope="node", ranks=2, bytes=100, seconds=3.0, latency_seconds=1.0)
    fabric = fabric_of(target_of_profile(exchanging(run, node)), Draws())
    assert all_reduce(fabric, np.array([50.0, 50.0]), "gloo").sum(axis=1) == pytest.approx(13.0)


def test_an_exchange_that_is_all_latency_tells_the_rate_of_all_its_time():
    run = Collective(scope="world", ranks=2, bytes=100, seconds=1.0, latency_seconds=0.95)
    found = target_of_profile(exchanging(run, ranks=2))
    assert found.network.bytes_per_second.value == pytest.approx(100)


def test_a_probe_s_curves_tell_alpha_and_beta():
    curves = links(
        exchanges=(ring(4, 1e-5, 1e10, backend="nccl"), ring(8, 2e-5, 1e9, nodes=2, backend="nccl"))
    )
    found = target_of_probe(probe(host(measured=curves, gpus=gpus(4)), host("node1", gpus=gpus(4))))
    assert (found.nodes, found.devices, found.backend) == (2, 4, "nccl")
    assert found.inside.bytes_per_second.value == pytest.approx(1e10, rel=0.05)
    assert found.network.latency_seconds.value == pytest.approx(2e-5, rel=0.3)


def test_streams_stand_in_where_no_all_reduce_crossed():
    measured = links(streams=(stream(0, 1, 1, 1e8), stream(0, 1, 8, 1e9)))
    found = target_of_probe(probe(host(measured=measured), host("node1")))
    assert found.network.bytes_per_second.value == pytest.approx(1e9, rel=0.05)
    assert "8 TCP flows" in found.network.bytes_per_second.source


def test_an_instance_s_claims_are_multiplied_by_what_is_reached_of_such():
    found = target_of_instance(catalog.instance("p4d.24xlarge"), 2, "rdma")
    share, wires = cluster.reached_share("nvswitch"), cluster.reached_share("efa")
    assert found.inside.bytes_per_second.value == pytest.approx(300e9 * share.value)
    assert found.inside.wiring == "nvswitch"
    assert found.network.transport == "efa"
    assert found.network.bytes_per_second.value == pytest.approx(50e9 * wires.value)
    assert "karpenter" in found.network.bytes_per_second.source
    assert "nccl" in found.network.bytes_per_second.source


def test_a_mesh_of_unknown_cut_may_be_as_slow_as_its_pcie():
    found = target_of_instance(catalog.instance("p3.8xlarge"), 1).inside
    whole = target_of_instance(catalog.instance("p3.16xlarge"), 1).inside
    assert found.bytes_per_second.value / found.bytes_per_second.low > 10
    assert whole.bytes_per_second.value / whole.bytes_per_second.low < 5


def test_fast_lines_of_sockets_are_held_to_what_sockets_do():
    slow, fast = (network_rate(wished(rate, "--network"), "tcp") for rate in (10e9 / 8, 100e9 / 8))
    limit = cluster.socket_limit()
    assert slow.value == pytest.approx(10e9 / 8, rel=0.05)
    assert fast.value == limit.value
