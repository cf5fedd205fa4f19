"""The documents that ``stash whatif --json`` prints: a contract, see docs/format.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stash.analysis.breakdown import Breakdown
from stash.core.intervals import Interval
from stash.predict.changes import document_name
from stash.predict.draws import Used
from stash.predict.forecast import Forecast
from stash.whatif.answers import WhatIf
from stash.whatif.sweep import Point, SweptOption

SCHEMA = 1
_DIGITS = 6
_NOTHING = 1e-12
"""Rounding of sums that cancel."""


def document(answer: WhatIf) -> dict[str, Any]:
    """Of one answer; seconds per step, samples per second, base units; what is not known is null."""
    told = answer.told
    return {
        "schema": SCHEMA,
        "workload": answer.workload,
        "changes": {document_name(option): text for option, text in answer.typed.items()},
        "target": told.target.model_dump(mode="json"),
        "measured": _measured(answer.measured),
        "forecast": {**forecast(told), "unknown": [item.model_dump() for item in answer.lost]},
        "next": answer.next.name,
        "enough": [
            {"option": stop.option, "value": _short(stop.value), "gain": stop.gain} for stop in answer.enough
        ],
        "data": None if answer.data is None else _data(answer),
        "memory": None if answer.fit is None else {
            "needed_bytes": round(answer.fit.needed_bytes),
            "memory_bytes": answer.fit.memory_bytes,
            "largest_batch": answer.fit.largest_batch,
            "fits": answer.fit.fits,
        },
        "training": list(answer.training),
        "unanswered": [{**item._asdict()} for item in answer.unanswered],
    }  # fmt: skip


def sweep_document(
    workload: str, typed: dict[str, str], over: Sequence[SweptOption], points: Sequence[Point]
) -> dict[str, Any]:
    """Of a sweep: one forecast a point, null where there is none, with the reason."""
    return {
        "schema": SCHEMA,
        "workload": workload,
        "changes": {document_name(option): text for option, text in typed.items()},
        "over": [document_name(axis.option) for axis in over],
        "points": [
            {
                "values": dict(zip((document_name(axis.option) for axis in over), point.texts, strict=True)),
                "forecast": None if point.told is None else forecast(point.told),
                "why": point.why,
            }
            for point in points
        ],
    }


def forecast(told: Forecast) -> dict[str, Any]:
    """The forecast alone."""
    breakdown, grounds = told.breakdown, {part.stall: part for part in told.grounds}
    return {
        "step_seconds": _ends(breakdown.step),
        "samples_per_second": _short(breakdown.samples_per_second),
        "samples_per_step": _short(breakdown.samples_per_step),
        "origin": told.origin,
        "stalls": [
            {
                "name": stall.name,
                "seconds": _ends(stall.time),
                "share": round(stall.share, 4),
                "origin": grounds[stall.name].origin,
                "facts": [_used(fact) for fact in grounds[stall.name].facts],
                "beyond": list(grounds[stall.name].beyond),
            }
            for stall in breakdown.stalls
        ],
        "beyond": list(told.beyond),
        "draws": told.draws,
        "seed": told.seed,
    }


def _measured(breakdown: Breakdown) -> dict[str, Any]:
    return {
        "step_seconds": _ends(breakdown.step),
        "samples_per_second": _short(breakdown.samples_per_second),
        "samples_per_step": _short(breakdown.samples_per_step),
        "stalls": [{"name": stall.name, "seconds": _ends(stall.time)} for stall in breakdown.stalls],
    }


def _data(answer: WhatIf) -> dict[str, float | int | None]:
    found = answer.data
    assert found is not None, "asked for where there is one"
    return {
        "device_rate": _short(found.device_rate),
        "prep_rate": _short(found.prep_rate),
        "fetch_rate": _short(found.fetch_rate),
        "baseline_rate": _short(found.baseline),
        "workers_to_hide_prep": found.workers,
        "cores_per_rank_to_hide_prep": _short(found.cores_per_rank),
        "cache_that_suffices": _short(found.cached),
        "disk_bytes_per_second_that_suffices": _short(found.disk_bytes_per_second),
    }


def _used(fact: Used) -> dict[str, Any]:
    quantity = fact.quantity
    return {
        "about": fact.about,
        "unit": fact.unit,
        **_ends(quantity.interval),
        "origin": quantity.origin,
        "as_of": quantity.as_of,
        "source": quantity.source,
    }


def _ends(interval: Interval) -> dict[str, float | None]:
    return {"value": _short(interval.value), "low": _short(interval.low), "high": _short(interval.high)}


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}") if abs(value) >= _NOTHING else 0.0
