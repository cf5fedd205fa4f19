"""A probe, read whole."""

from __future__ import annotations

import pytest
from probe_builder import gpus, host, p3_8xlarge, probe
from readings import CATALOG, found

from stash.analysis.findings.probe_reading import read_probe
from stash.core.errors import UserError
from stash.core.records.host import Limits


def test_a_machine_without_links_limits_or_type_has_no_findings():
    assert found(host()) == {}
    assert found(host(gpus=gpus(4))) == {}


def test_an_unknown_type_is_refused_with_the_nearest_names():
    with pytest.raises(
        UserError, match=r"unknown instance 'p3\.9xlarge'; did you mean .*p3\.8xlarge"
    ):
        read_probe(probe(host()), CATALOG, "p3.9xlarge")


def test_a_type_that_the_catalog_does_not_know_is_a_note():
    reading = read_probe(probe(host(cloud="aws", instance="z9.mega")), CATALOG)
    assert "does not know z9.mega" in reading.notes[0]
    assert reading.comparisons == ()


def test_every_finding_has_its_measurement_and_dated_facts_their_source():
    findings = read_probe(
        probe(p3_8xlarge(limits=Limits(cpus=4.0))), CATALOG, "p3.16xlarge"
    ).findings
    assert {finding.name for finding in findings} >= {"cpu-limit", "uneven-pairs", "gpu-count"}
    for finding in findings:
        assert finding.measured is not None or finding.name in ("gpu-model", "lost-gpu", "no-rdma")
        assert finding.fact is None or finding.fact.source
        if finding.fact is not None and finding.fact.as_of is not None:
            assert f"catalog of {finding.fact.as_of}: {finding.fact.source}" in finding.text
