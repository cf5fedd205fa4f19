"""Burst and sustained rates of network disks, and object stores: what of them a training finds."""

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
    burst_seconds=given(100.0, "credit"),
)  # fmt: skip


@pytest.mark.parametrize(("lasting", "rate", "expected"), [
    (None, 100e6, "say how long training lasts with --duration"),
    (50.0, 200e6, None),
    (400.0, 125e6, "training outlasts the credit of its storage"),
])  # fmt: skip
def test_burst_and_sustained_are_told_apart(lasting, rate, expected) -> None:
    # 100 s of credit at twice the base; over 400 s a quarter of them
    found = served(BURSTING, lasting, DRAWS)
    assert found.store.bytes_per_second.mean() == pytest.approx(rate)
    assert [expected in sentence for sentence in found.beyond] == ([True] if expected else [])


def test_a_burst_of_unknown_length_or_without_a_base_is_said_to_be_one() -> None:
    (endless,) = served(BURSTING.model_copy(update={"burst_seconds": None}), 50.0, DRAWS).beyond
    assert "for how long is unknown" in endless
    found = served(BURSTING.model_copy(update={"bytes_per_second": None}), 50.0, DRAWS)
    assert "is not published" in found.beyond[0]
    assert found.store.bytes_per_second.mean() == pytest.approx(200e6)


def test_storage_without_any_rate_is_unknown() -> None:
    assert served(Storage(), None, DRAWS) is None


def test_network_disks_of_small_instances_burst_for_half_an_hour() -> None:
    storage = of_instance(catalog.instance("g4dn.xlarge"), 1).storage
    assert storage.burst_seconds.value == 1800
    assert storage.burst_seconds.origin == "data sheet"
    (sentence,) = served(storage, 12 * 3600.0, DRAWS).beyond
    assert "outlasts" in sentence
    assert served(of_instance(catalog.instance("p3.8xlarge"), 1).storage, None, DRAWS).beyond == ()
