"""Stalls that nobody measured: why, and what contains them."""

from __future__ import annotations

import pytest
from breakdowns import seconds, unknown
from profile_builder import build

from stash.analysis.attribution import attribute
from stash.core.records.profile import Loader


def test_one_device_per_node_has_a_network_stall_and_no_interconnect():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=2, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "one device per node"
    assert breakdown.paper.network_pct == pytest.approx((0.2 - 0.11) / 0.11 * 100)
    assert breakdown.paper.interconnect_pct is None


def test_a_node_rung_left_out_hides_its_stall_in_the_network_and_says_so():
    times = {"solo": [0.1] * 3, "crowd": [0.11] * 3, "cluster": [0.2] * 3}
    breakdown = attribute(build(times, ranks=4, nodes=2))
    assert seconds(breakdown)["network"] == pytest.approx(0.09)
    assert unknown(breakdown)["interconnect"] == "not asked for (--rungs); contained in network"
    assert breakdown.paper.network_pct is None


def test_the_first_rung_is_compute_whatever_it_is():
    breakdown = attribute(build({"cluster": [0.2] * 3, "warm": [0.3] * 3}, ranks=4, nodes=2, device="cuda"))
    assert seconds(breakdown) == {"compute": 0.2, "prep": 0.1}
    reasons = unknown(breakdown)
    for name in ("transfer", "contention", "interconnect", "network"):
        assert reasons[name].endswith("contained in compute")
    assert reasons["fetch"] == "not asked for (--rungs)"


def test_a_loader_that_copies_to_the_device_has_the_transfer_in_prep():
    why = "batches (list) arrive on cuda:0"
    work = {"loaders": (Loader(kind="map", workers=0, on_device=True),)}
    times = {"solo": [0.1] * 3, "warm": [0.2] * 3}
    breakdown = attribute(build(times, device="cuda", workload=work, skipped={"resident": why}))
    assert unknown(breakdown)["transfer"] == f"{why}; contained in prep"
    without = attribute(build({"solo": [0.1] * 3}, device="cuda", workload=work, skipped={"resident": why}))
    assert unknown(without)["transfer"] == why  # nothing that was measured contains it


def test_without_resident_a_gpus_compute_contains_the_transfer():
    breakdown = attribute(build({"solo": [0.1] * 3, "crowd": [0.1] * 3}, device="cuda"))
    assert unknown(breakdown)["transfer"] == "not asked for (--rungs); contained in compute"
