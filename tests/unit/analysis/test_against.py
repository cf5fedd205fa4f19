"""A machine against its type, and the types it is most like."""

from __future__ import annotations

import pytest
from probe_builder import GB, host, p3_8xlarge, probe
from readings import CATALOG

from stash.analysis.findings.probe_reading import read_probe


def test_unknown_stays_unknown_in_a_comparison():
    rows = {row.name: row for row in read_probe(probe(p3_8xlarge()), CATALOG).comparisons[0].rows}
    assert rows["GPU pair, slowest"].catalog is None
    assert rows["GPU pair, slowest"].ratio is None
    assert rows["network, TCP"].measured is None
    assert rows["GPU pair, fastest"].ratio == pytest.approx(48 / 50, rel=0.03)
    assert rows["disk, sequential"].measured.value == pytest.approx(0.125 * GB)


def test_a_machine_of_unknown_type_is_most_like_the_type_with_its_shape():
    (likeness,) = read_probe(probe(p3_8xlarge(instance=None, cloud=None)), CATALOG).nearest
    assert likeness.types[0].instance == "p3.8xlarge"
    assert likeness.types[0].not_compared == ("network",)
    assert read_probe(probe(host(cores=None, memory_bytes=None)), CATALOG).nearest == ()
