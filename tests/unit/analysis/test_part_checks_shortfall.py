"""Links held to what the machine's type should have."""

from __future__ import annotations

from probe_builder import GB, gpus, host, links, pairs, ring
from readings import cluster, found


def test_even_pairs_below_the_types_best_are_found_against_the_catalog():
    even = links(copies=pairs({(0, 1): 9.8 * GB, (0, 2): 9.9 * GB, (1, 2): 9.7 * GB}))
    named = found(host(measured=even, gpus=gpus(3), instance="p3.16xlarge", cloud="aws"))
    assert "uneven-pairs" not in named
    assert "reaches 9.8" in named["slow-pairs"][0]


def test_the_network_is_held_to_the_types_label_beyond_its_tolerance():
    (text,) = found(*cluster(lambda a, b: 1.0), against="p3.16xlarge")["slow-network"]
    assert "reaches 21." in text
    assert "sustained network of p3.16xlarge: 25 Gbit/s (catalog of 2026-11-20: " in text
    healthy = cluster(lambda a, b: 1.0, flows=((1, 24.0), (8, 24.4)))
    assert "slow-network" not in found(*healthy, against="p3.16xlarge")
    # the catalog is silent
    assert "slow-network" not in found(*cluster(lambda a, b: 1.0), against="p2.xlarge")


def test_all_reduce_below_the_links_is_found_and_a_healthy_one_is_not():
    usual = {"gpus": gpus(8), "cores": 64, "memory_bytes": 480 * 2**30}
    healthy = host(measured=links(exchanges=(ring(8, 5e-6, 120 * GB, backend="nccl"),)), **usual)
    broken = host(measured=links(exchanges=(ring(8, 5e-6, 10 * GB, backend="nccl"),)), **usual)
    assert found(healthy, against="p3.16xlarge") == {}
    assert "slow-all-reduce" in found(broken, against="p3.16xlarge")
