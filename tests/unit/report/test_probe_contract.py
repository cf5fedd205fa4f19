"""The document that ``stash probe --json`` prints."""

from __future__ import annotations

import json

from probe_builder import p3_8xlarge, probe
from readings import CATALOG

from stash.analysis.findings.probe_reading import read
from stash.report.probe_page import document


def test_the_json_holds_the_probe_as_saved_and_what_is_derived_beside_it():
    measured = probe(p3_8xlarge())
    made = json.loads(json.dumps(document(measured, read(measured, CATALOG))))
    assert list(made) == [
        *("schema", "probe", "links", "exchanges", "findings", "comparisons", "nearest", "notes", "next_steps")
    ]
    assert made["probe"] == measured.model_dump(mode="json")
    pair = next(row for row in made["comparisons"][0]["rows"] if row["name"] == "GPU pair, slowest")
    assert pair["catalog"] is None
    assert pair["ratio"] is None
    assert made["links"][0]["rate"]["low"] < made["links"][0]["rate"]["value"] < made["links"][0]["rate"]["high"]
