"""Burst and sustained rates of network disks: what of them a training finds."""

from __future__ import annotations

import pytest

from stash import catalog
from stash.predict.cluster import Storage
from stash.predict.cluster_sources import target_of_instance
from stash.predict.draws import Draws, given_quantity
from stash.predict.pipeline import draw_storage

DRAWS = Draws()
BURSTING = Storage(
    bytes_per_second=given_quantity(100e6, "base"),
    burst_bytes_per_second=given_quantity(200e6, "burst"),
)


def test_what_a_burst_sustains_is_taken():
    found = draw_storage(BURSTING, DRAWS)
    assert found.bytes_per_second.mean() == pytest.approx(100e6)
    assert "at first; what it sustains, 100 MB/s, is taken" in found.beyond[0]


def test_storage_without_any_rate_is_unknown():
    assert draw_storage(Storage(), DRAWS) is None


def test_only_network_disks_of_small_instances_burst():
    small, large = (
        target_of_instance(catalog.instance(name), 1).storage
        for name in ("g4dn.xlarge", "p3.8xlarge")
    )
    assert len(draw_storage(small, DRAWS).beyond) == 1
    assert draw_storage(large, DRAWS).beyond == ()
