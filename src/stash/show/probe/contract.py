"""The document that ``stash probe --json`` prints: a contract with other programs, see docs/probe.md.

What was measured stands under ``probe`` as it is saved; everything beside it is derived from that and the catalog.
What is not known is null. New keys may be added under the same ``schema``.
"""

from __future__ import annotations

from typing import Any

from stash.base.records import Probe
from stash.derive.advise.findings import next_steps
from stash.derive.findings import Reading

SCHEMA = 1


def document(probe: Probe, reading: Reading) -> dict[str, Any]:
    """Keys in the order of the contract; ratios of a comparison are derived here, because they are not stored."""
    derived = reading.model_dump(mode="json")
    for comparison, record in zip(derived["comparisons"], reading.comparisons, strict=True):
        for row, its in zip(comparison["rows"], record.rows, strict=True):
            row["ratio"] = its.ratio
    return {
        "schema": SCHEMA,
        "probe": probe.model_dump(mode="json"),
        **derived,
        "next_steps": list(next_steps(reading.findings)),
    }
