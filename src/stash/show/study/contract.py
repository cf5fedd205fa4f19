"""A study as JSON for other programs; its keys are a contract (``docs/format.md``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stash.derive.study.cells import Cell
from stash.derive.study.reading import StudyReading

SCHEMA = 1


def document(
    reading: StudyReading, lanes: Mapping[str, str], described: Mapping[str, Any], spent: float, results: str
) -> dict[str, Any]:
    """``described``: files and commands by cell's id."""
    takes = reading.takes(lanes)
    return {
        "schema": SCHEMA,
        "study": reading.name,
        "results": results,
        "cells": [_cell(reading, cell, described.get(cell.id)) for cell in reading.cells],
        "to_run": {"cells": takes.cells, "seconds": takes.seconds, "dollars": takes.dollars},
        "spent_dollars": spent,
        "assumptions": list(reading.assumptions),
    }


def _cell(reading: StudyReading, cell: Cell, described: Any) -> dict[str, Any]:
    standing, estimate = reading.standings[cell.id], reading.estimates[cell.id]
    last = standing.last
    return {
        "id": cell.id,
        "workload": cell.workload,
        "batch": cell.batch,
        "target": cell.place.name,
        "engine": cell.place.target.engine,
        "nodes": cell.nodes,
        "repeat": cell.repeat,
        "state": standing.state,
        "why": standing.why,
        "artefact": last.artefact if last is not None and last.artefact else None,
        "seconds": last.seconds if last is not None else None,
        "dollars": last.dollars if last is not None else None,
        "estimated_seconds": estimate.seconds,
        "estimated_dollars": estimate.dollars,
        "submission": described,
    }
