"""Collectives by hand: every formula on numbers that can be worked out on paper, and what must hold of any."""

import numpy as np
import pytest
from fabric_by_hand import fabric, hops
from hypothesis import given
from hypothesis import strategies as st

from stash.predict.collective_times import all_reduce, broadcast, half_exchange, ring, tree

MB = np.array([1e6])


def seconds(drawn):
    return float(drawn[0, 0])


def test_a_ring_over_nodes_goes_as_fast_as_its_narrowest_link():
    # 8 ranks on 2 nodes: 14 hops, 2 of them between nodes; 2·7/8 · 1 MB at 10 MB/s.
    found = ring(fabric(2, 4, inside=1e9, between=1e7, latency=hops(0.0, 0.001, 0.01)), MB)
    assert seconds(found) == pytest.approx(0.175 + 12 * 0.001 + 2 * 0.01)


def test_a_tree_of_two_nodes_sends_its_bytes_once():
    # Between nodes 2·1/2 · 1 MB at 10 MB/s; inside 2 · 1 MB at 1 GB/s is faster, so hidden; both at 0.9 of the rate.
    found = tree(fabric(2, 4, inside=1e9, between=1e7, latency=hops(0.0, 0.001, 0.01)), MB)
    assert seconds(found) == pytest.approx(0.1 / 0.9 + 2 * 3 * 0.001 + 2 * 1 * 0.01)


def test_gathering_and_scattering_are_half_of_a_ring():
    place = fabric(2, 4, inside=1e9, between=1e7, latency=hops(0.0, 0.001, 0.01))
    assert 2 * seconds(half_exchange(place, MB)) == pytest.approx(seconds(ring(place, MB)))


def test_a_broadcast_sends_its_bytes_once():
    assert seconds(
        broadcast(fabric(1, 4, inside=1e8, latency=hops(inside=0.001)), MB)
    ) == pytest.approx(0.01 + 0.003)


@pytest.mark.parametrize("function", [half_exchange, broadcast])
def test_one_rank_exchanges_nothing(function):
    assert seconds(function(fabric(1, 1), MB)) == 0.0  # type: ignore[operator]
    assert seconds(all_reduce(fabric(1, 1), MB, "nccl")) == 0.0


def test_nccl_takes_the_faster_of_ring_and_tree_for_each_size():
    # Many nodes and little bandwidth between: small messages go by tree, which has few hops; large ones by ring
    # inside one node, where a tree's share of the rate and its second copy cost it more.
    place = fabric(64, 1, between=1e9, latency=hops(between=1e-5))
    sizes = np.array([1e3, 1e9])
    found = all_reduce(place, sizes, "nccl")
    assert found[0, 0] == tree(place, sizes)[0, 0] < ring(place, sizes)[0, 0]
    assert found[0, 1] == ring(place, sizes)[0, 1] < tree(place, sizes)[0, 1]


def test_gloo_always_takes_its_ring():
    place = fabric(64, 1, between=1e9, latency=hops(between=1e-5))
    assert (all_reduce(place, MB, "gloo") == ring(place, MB)).all()


shapes = st.tuples(st.integers(1, 64), st.integers(1, 16))
rates = st.floats(1e6, 1e12)
backends = st.sampled_from(["nccl", "gloo"])


@given(shapes, rates, rates, st.floats(1e-3, 1e3), backends)
def test_scaling_bytes_and_rates_by_one_factor_changes_nothing(
    shape, inside, between, factor, backend
):
    latency = hops(1e-5, 1e-6, 1e-5)
    before = all_reduce(fabric(*shape, inside, between, latency), MB, backend)
    scaled = fabric(*shape, inside * factor, between * factor, latency)
    assert all_reduce(scaled, MB * factor, backend) == pytest.approx(before, rel=1e-9)
