"""What a step holds on a device, by hand."""

from __future__ import annotations

import pytest

from stash.predict.memory import RESERVE, Footprint, footprint


def test_a_footprint_is_what_stays_and_what_each_sample_adds():
    found = footprint(peak_bytes=5e9, batch=32, constant=4e8, constant_there=4e8)
    assert found == Footprint(4e8, (5e9 - 4e8) / 32)
    assert found.bytes_at(32) == pytest.approx(5e9)
    room = 16e9 * (1 - RESERVE)
    largest = found.largest_batch(16e9)
    assert found.bytes_at(largest) <= room < found.bytes_at(largest + 1)
    assert found.fits(found.bytes_at(largest), 16e9)
    assert not found.fits(found.bytes_at(largest + 1), 16e9)
    assert found.largest_batch(1e8) == 0


def test_a_peak_below_what_is_constant_tells_nothing():
    assert footprint(1e8, 32, 2e8, 2e8) is None
