"""What links reach of their claims: worked from the rows of the table, and never more than a wire can carry."""

from __future__ import annotations

import math

import pytest

from stash.catalog.reference import collective_rates, hop_latencies, node_scaling
from stash.predict import cluster

LINKS = ("nvswitch", "nvlink", "pcie", "efa", "infiniband", "tcp")


@pytest.mark.parametrize("link", LINKS)
def test_every_link_has_a_share_with_source_date_and_spread(link):
    share = cluster.reached_share(link)  # type: ignore[arg-type]
    assert share.low < share.value < share.high or share.value == share.high == 1.0
    assert share.origin == "data sheet"
    assert share.as_of
    assert share.source


def test_a_link_of_one_machine_has_its_share_and_the_spread_of_all():
    share = cluster.reached_share("nvlink")
    # NVIDIA/nccl-tests#178, the only pair in the table
    assert share.value == pytest.approx(208 / 300)
    assert share.high > 1.5 * share.value


def test_wires_between_nodes_carry_no_more_than_they_claim():
    for link in ("efa", "infiniband", "tcp"):
        share = cluster.reached_share(link)  # type: ignore[arg-type]
        assert share.high <= 1.0


def test_a_tree_s_bus_bandwidth_is_turned_into_what_its_wire_carried():
    # Two p4d: 57.2 GB/s of bus bandwidth over 16 ranks; per byte a tree sends 2·1/2 and a ring 2·15/16.
    rate = next(
        each
        for each in collective_rates()
        if each.source == "NVIDIA/nccl#527" and each.scope == "between"
    )
    assert cluster._wire_rate(rate) == pytest.approx(57.2e9 / (15 / 8))


def test_sockets_have_a_limit_of_their_own_near_twenty_gigabits():
    limit = cluster.socket_limit()
    assert 15 < limit.value * 8e-9 < 30


def test_a_source_can_be_left_out():
    with_all, without = cluster.socket_limit(), cluster.socket_limit("gist zarzen/c2dca465")
    assert "zarzen" in with_all.source
    assert "zarzen" not in without.source
    assert with_all.value != without.value
    # no other source measured slow links
    assert cluster.reached_share("tcp", "gist zarzen/c2dca465") is None


def test_latencies_of_published_machines_lie_around_nccl_s_table():
    found = cluster.latency_factor()
    assert found.low < 1 < found.high


def test_every_row_of_the_tables_is_whole():
    assert len(collective_rates()) > 30
    for rate in collective_rates():
        assert rate.source
        assert rate.published
        assert rate.ranks >= 2
        assert rate.nodes == 1 if rate.scope == "inside" else rate.nodes > 1
        assert (
            0.01 < rate.bus_bytes_per_second / rate.claimed_bytes_per_second < 2
            or rate.message_bytes
        )
        assert math.isfinite(rate.claimed_bytes_per_second)
    assert {each.algorithm for each in hop_latencies()} == {"ring", "tree"}
    assert all(each.devices > 1 and each.source for each in node_scaling())


def test_cards_that_cannot_read_each_others_memory_share_a_slower_pcie():
    """Of 15.75 GB/s: what steps of two models wait for tells 1.3 to 1.9."""
    assert cluster.inside_link("pcie", "NVIDIA GeForce RTX 2080 Ti") == "pcie-host"
    assert {cluster.inside_link("pcie", gpu) for gpu in ("T4", "RTX-6000", None)} == {"pcie"}
    assert cluster.inside_link("nvlink", "RTX-2080-Ti") == "nvlink"
    share = cluster.reached_share("pcie-host")
    assert 15.75 * share.value == pytest.approx(1.66, abs=0.01)
