"""Measured beside the catalog, line by line."""

from __future__ import annotations

import pytest
from probe_builder import GB, p3_8xlarge, probe
from readings import CATALOG

from stash.analysis.findings.probe_reading import read


def test_unknown_stays_unknown_in_a_comparison():
    rows = {row.name: row for row in read(probe(p3_8xlarge()), CATALOG).comparisons[0].rows}
    assert rows["GPU pair, slowest"].catalog is None
    assert rows["GPU pair, slowest"].ratio is None
    assert rows["network, TCP"].measured is None
    assert rows["GPU pair, fastest"].ratio == pytest.approx(48 / 50, rel=0.03)
    assert rows["disk, sequential"].measured.value == pytest.approx(0.125 * GB)
