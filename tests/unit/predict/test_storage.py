"""Burst and sustained rates of network disks: what of them a training finds."""

from __future__ import annotations

import pytest

from stash import catalog
from stash.predict.cluster import Storage
from stash.predict.cluster_sources import of_instance
from stash.predict.draws import Draws, given
from stash.predict.pipeline import served

DRAWS = Draws()
BURSTING = Storage(
    bytes_per_second=given(100e6, "base"), burst_bytes_per_second=given(200e6, "burst"),
)  # fmt: skip


def test_what_a_burst_sustains_is_taken() -> None:
    found = served(BURSTING, DRAWS)
    assert found.bytes_per_second.mean() == pytest.approx(100e6)
    assert "at first; what it sustains, 100 MB/s, is taken" in found.beyond[0]


def test_a_burst_without_a_base_is_said_to_be_one() -> None:
    found = served(BURSTING.model_copy(update={"bytes_per_second": None}), DRAWS)
    assert "is not published" in found.beyond[0]
    assert found.bytes_per_second.mean() == pytest.approx(200e6)


def test_storage_without_any_rate_is_unknown() -> None:
    assert served(Storage(), DRAWS) is None


def test_only_network_disks_of_small_instances_burst() -> None:
    small, large = (of_instance(catalog.instance(name), 1).storage for name in ("g4dn.xlarge", "p3.8xlarge"))
    assert len(served(small, DRAWS).beyond) == 1
    assert served(large, DRAWS).beyond == ()
