"""Which types a machine of unknown type is most like."""

from __future__ import annotations

from probe_builder import host, p3_8xlarge, probe
from readings import CATALOG

from stash.analysis.findings.probe_reading import read


def test_a_machine_of_unknown_type_is_most_like_the_type_with_its_shape():
    (likeness,) = read(probe(p3_8xlarge(instance=None, cloud=None)), CATALOG).nearest
    assert likeness.types[0].instance == "p3.8xlarge"
    assert likeness.types[0].not_compared == ("network",)
    assert read(probe(host(cores=None, memory_bytes=None)), CATALOG).nearest == ()
