"""Files of spot training: pools, measured runs, models and plans of fleets, loss curves, logs of runs.

Knows their formats (``docs/format.md``) and turns them into records. Knows nothing of what the numbers mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from stash.api import Date
from stash.core import documents
from stash.core.documents import DocumentFile
from stash.core.errors import UserError
from stash.core.records.base import Number, Record
from stash.core.user_files import fit_model, load_rows, text_of, yaml_text
from stash.spot.fleet_records import (
    FLEET_SCHEMA,
    FleetModel,
    FleetPlan,
    FleetPool,
    FleetRun,
)
from stash.spot.run_records import CURVE_SCHEMA, SPOT_LOG_SCHEMA, LearnedCurve, SpotLog

DESCRIBED = "it is described in docs/how-to/spot.md"
FLEET_MODELS = DocumentFile(documents.FLEET_MODEL, FleetModel, FLEET_SCHEMA)
FLEET_PLANS = DocumentFile(documents.FLEET_PLAN, FleetPlan, FLEET_SCHEMA)
CURVES = DocumentFile(documents.CURVE, LearnedCurve, CURVE_SCHEMA, ("replays",))
SPOT_LOGS = DocumentFile(
    documents.SPOT_LOG, SpotLog, SPOT_LOG_SCHEMA, ("stretches", "takeovers", "events")
)

read_model = FLEET_MODELS.load
read_plan = FLEET_PLANS.load
save_curve = CURVES.save
load_curve = CURVES.load
save_spot_log = SPOT_LOGS.save
load_spot_log = SPOT_LOGS.load


class _Pool(FleetPool):
    """As people write it."""

    as_of: Date  # type: ignore[assignment]  # a missing one is refused


def read_pool(path: Path, curve: LearnedCurve | None = None) -> FleetPool:
    """The pool at ``path``, with its loss from ``curve`` if there is one; raises UserError with line and field of
    every mistake.
    """
    document = yaml_text(text_of(path, "the pool", DESCRIBED), path)
    data = document.data
    if curve is not None and isinstance(data, dict):
        if "loss" in data:
            raise document.mistake(("loss",), "--curve says that; leave one of them out")
        data["loss"] = curve.fitted.curve.model_dump()
        data["learned"] = curve.learned_range.model_dump()
        data.setdefault("exchange_bytes", float(curve.parameter_bytes))
        if isinstance(data.get("server"), dict):
            data["server"].setdefault("apply_seconds", curve.apply_seconds)
    return FleetPool.model_validate(fit_model(document, _Pool).content.model_dump())


class _Run(Record):
    servers: Annotated[int, Field(ge=1, le=1000, examples=["1"])]
    workers: Annotated[str, Field(examples=["v100=2+k80=1"])]
    updates_per_second: Annotated[Number, Field(ge=1e-6, le=1e9, examples=["12.5"])]
    """Between twelve days for one, and more than clocks resolve."""


def read_runs(path: Path) -> tuple[FleetRun, ...]:
    """The measured fleets of a CSV with the columns servers, workers, updates_per_second; raises UserError."""
    rows = load_rows(path, _Run, "the runs", DESCRIBED, most=2_000)
    return tuple(
        FleetRun(
            servers=row.servers,
            workers=workers_of(row.workers, f"{path}:{line}: workers:", "+"),
            updates_per_second=row.updates_per_second,
        )
        for line, row in rows
    )


def workers_of(text: str, what: str, joined: str) -> dict[str, int]:
    """``v100=2+k80=1`` as counts by type; ``what`` begins the sentence if it cannot be read. Raises UserError."""
    example = f"v100=2{joined}k80=1"
    found: dict[str, int] = {}
    for part in text.split(joined):
        name, equals, count = (piece.strip() for piece in part.partition("="))
        if (
            not name
            or not equals
            or not (count.isascii() and count.isdigit())
            or not 0 < int(count[:9]) <= 10_000
        ):
            raise UserError(
                f"{what} {text!r} cannot be read at {part.strip()!r}; write it like {example}"
            )
        if name in found:
            raise UserError(f"{what} {text!r} names {name} twice; write it like {example}")
        found[name] = int(count)
    return found
