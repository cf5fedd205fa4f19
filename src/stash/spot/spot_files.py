"""Files of spot training: pools, measured runs, models and plans of fleets, loss curves, logs of runs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from stash.catalog.facts import is_date
from stash.core import documents
from stash.core.documents import Document, DocumentKind
from stash.core.errors import UnitError, UserError
from stash.core.files import read_up_to
from stash.core.records.base import first_mistake
from stash.core.units import nearest, parse_bytes, parse_interruptions, parse_rate
from stash.core.yamlines import Lines, not_yaml, parse
from stash.spot.records.fleets import FLEET_MODEL_SUFFIX, FLEET_SCHEMA, FleetModel, FleetPlan, FleetPool, FleetRun
from stash.spot.records.runs import (
    CURVE_SCHEMA,
    CURVE_SUFFIX,
    SPOT_LOG_SCHEMA,
    SPOT_LOG_SUFFIX,
    LearnedCurve,
    SpotLog,
)

# Fleets ----------------------------------------------------------------------------------------------------
# Files about fleets: a pool (YAML), measured runs (CSV), a fitted model and a plan (JSON).
#
# Knows their formats (``docs/format.md``) and turns them into records, or into one sentence that says what is wrong
# on which line. Knows nothing of what the numbers mean.

COLUMNS = ("servers", "workers", "updates_per_second")
_MAX_BYTES = 2**20
_MAX_RUNS = 2_000
_SLOWEST, _FASTEST = 1e-6, 1e9
"""Updates per second: twelve days for one, and more than clocks tell apart."""
_UNITS = {
    "exchange_bytes": parse_bytes,
    "worker_bytes_per_second": parse_rate,
    "pcie_bytes_per_second": parse_rate,
    "bytes_per_second": parse_rate,
    "memory_bytes": parse_bytes,
    "needs_bytes": parse_bytes,
}
"""Fields that may be written with a unit, like 11.5MB."""


def text_of(path: Path, what: str) -> str:
    """The content of a file about fleets, of 1 MiB at most; raises UserError that calls it ``what``."""
    try:
        content = read_up_to(path, _MAX_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {what} {path}: {error.strerror or error}") from error
    if len(content) > _MAX_BYTES:
        raise UserError(f"{path} is larger than {_MAX_BYTES // 2**20} MiB: it is not {what}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a text file; {what} is described in docs/how-to/spot.md") from error


# Pools ----------------------------------------------------------------------------------------------------


def read_pool(path: Path, curve: LearnedCurve | None = None) -> FleetPool:
    """The pool at ``path``, with its loss from ``curve`` if there is one; raises UserError with line and field of the
    first mistake.
    """
    text = text_of(path, "the pool")
    try:
        data, lines = parse(text)
    except yaml.YAMLError as error:
        raise not_yaml(error, path) from error
    if not isinstance(data, dict):
        raise UserError(f"{path} is not a pool: it has no fields like types: and loss:; see docs/how-to/spot.md")
    _no_strangers(path, data, lines)
    if "as_of" in data:
        data["as_of"] = str(data["as_of"])
        if not is_date(data["as_of"]):
            where = lines.of(("as_of",))
            raise UserError(f"{path} line {where}: as_of: {data['as_of']!r} is not a date; write it like 2026-11-01")
    _interruptions(path, data, lines)
    if curve is not None:
        _learned(path, data, lines, curve)
    try:
        return FleetPool.model_validate(_in_base_units(path, data, lines))
    except ValidationError as error:
        place = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        raise UserError(f"{path} line {lines.of(place)}: {first_mistake(error)}") from error


def _in_base_units(path: Path, data: dict[str, Any], lines: Lines, above: tuple[str, ...] = ()) -> dict[str, Any]:
    found = dict(data)
    for name, value in data.items():
        if isinstance(value, dict):
            found[name] = _in_base_units(path, value, lines, (*above, name))
        elif name in _UNITS and isinstance(value, str):
            try:
                found[name] = _UNITS[name](value)
            except UnitError as error:
                raise UserError(f"{path} line {lines.of((*above, name))}: {name}: {error}") from error
    return found


def _interruptions(path: Path, data: dict[str, Any], lines: Lines) -> None:
    """Turn what is written like 5-10%/month into a band; raises UserError."""
    types = data.get("types")
    for at, each in enumerate(types if isinstance(types, list) else ()):
        text = each.get("interruptions") if isinstance(each, dict) else None
        if isinstance(text, str):
            try:
                low, high = parse_interruptions(text)
            except UnitError as error:
                where = lines.of(("types", at, "interruptions"))
                raise UserError(f"{path} line {where}: types.{at}.interruptions: {error}") from error
            each["interruptions"] = {"low": low, "high": high}


def _learned(path: Path, data: dict[str, Any], lines: Lines, curve: LearnedCurve) -> None:
    """Put in what a learned curve says; raises UserError where the pool says it too."""
    if "loss" in data:
        raise UserError(f"{path} line {lines.of(('loss',))}: loss: --curve says that; leave one of them out")
    data["loss"], data["learned"] = curve.best.curve.model_dump(), curve.learned.model_dump()
    data.setdefault("exchange_bytes", float(curve.parameter_bytes))
    if isinstance(data.get("server"), dict):
        data["server"].setdefault("apply_seconds", curve.apply_seconds)


def _no_strangers(path: Path, data: dict[str, Any], lines: Lines) -> None:
    """Raise UserError for a field that no pool has: a mistyped one would silently be a default."""
    parts: list[tuple[tuple[int | str, ...], Any, Any]] = [((), data, FleetPool)]
    for name in ("server", "contention", "loss", "uncertainty"):
        kind = FleetPool.model_fields[name].annotation
        models = [each for each in (kind, *getattr(kind, "__args__", ())) if hasattr(each, "model_fields")]
        parts.append(((name,), data.get(name), models[0]))
    types = data.get("types")
    worker = FleetPool.model_fields["types"].annotation.__args__[0]  # type: ignore[union-attr]
    parts += [(("types", at), each, worker) for at, each in enumerate(types if isinstance(types, list) else ())]
    for place, given, model in parts:
        for name in given if isinstance(given, dict) else ():
            if name not in model.model_fields:
                alike = nearest(str(name), model.model_fields, 1)
                hint = f"; did you mean {alike[0]}?" if alike else f"; it has {', '.join(model.model_fields)}"
                where = ".".join(map(str, (*place, name)))
                raise UserError(f"{path} line {lines.of((*place, name))}: {where}: there is no such field{hint}")


# Runs -----------------------------------------------------------------------------------------------------


def read_runs(path: Path) -> tuple[FleetRun, ...]:
    """The measured fleets of a CSV with the columns servers, workers, updates_per_second; raises UserError."""
    try:
        rows = list(csv.reader(io.StringIO(text_of(path, "the runs"), newline="")))
    except csv.Error as error:
        raise UserError(f"{path} is not a table of runs: {error}; its first line is {','.join(COLUMNS)}") from error
    head = [name.strip() for name in rows[0]] if rows else []
    missing = [name for name in COLUMNS if name not in head]
    if missing:
        raise UserError(
            f"{path} has no column {missing[0]}; its first line has to be {','.join(COLUMNS)}, and the others like "
            "1,v100=2+k80=1,12.5"
        )
    if len(rows) > _MAX_RUNS:
        raise UserError(f"{path} has {len(rows):,} lines; {_MAX_RUNS:,} are the most that can be fitted")
    runs = tuple(
        _run(path, number, dict(zip(head, row, strict=False)))
        for number, row in enumerate(rows[1:], start=2)
        if any(cell.strip() for cell in row)
    )
    if not runs:
        raise UserError(f"{path} has no runs below its first line; add some, like 1,v100=2+k80=1,12.5")
    return runs


def _run(path: Path, line: int, row: dict[str, str]) -> FleetRun:
    where = f"{path} line {line}"
    cells = {name: row.get(name, "").strip() for name in COLUMNS}
    try:
        speed = float(cells["updates_per_second"])
    except ValueError:
        speed = math.nan
    digits = cells["servers"]
    servers = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 5 else 0
    if servers < 1 or servers > 1000:
        raise UserError(f"{where}: servers {cells['servers']!r} is not a number of servers; write it like 1")
    if not _SLOWEST <= speed <= _FASTEST:
        raise UserError(
            f"{where}: updates_per_second {cells['updates_per_second']!r} is not a speed; write it like 12.5"
        )
    return FleetRun(
        servers=servers, workers=workers_of(cells["workers"], f"{where}: workers", "+"), updates_per_second=speed
    )


def workers_of(text: str, what: str, joined: str) -> dict[str, int]:
    """``v100=2+k80=1`` as counts by type; ``what`` begins the sentence if it cannot be read. Raises UserError."""
    example = f"v100=2{joined}k80=1"
    found: dict[str, int] = {}
    for part in text.split(joined):
        name, equals, count = (piece.strip() for piece in part.partition("="))
        if not name or not equals or not (count.isascii() and count.isdigit()) or not 0 < int(count[:9]) <= 10_000:
            raise UserError(f"{what} {text!r} cannot be read at {part.strip()!r}; write it like {example}")
        if name in found:
            raise UserError(f"{what} {text!r} names {name} twice; write it like {example}")
        found[name] = int(count)
    return found


# Models ---------------------------------------------------------------------------------------------------


R = TypeVar("R", FleetModel, FleetPlan)


def read_model(path: Path) -> FleetModel:
    """The model at ``path``; raises UserError if it is damaged, something else, or from a newer Stash."""
    return _saved(path, FleetModel, "fitted model", "lone", "fit it with `stash spot fit RUNS.csv -o MODEL`")


def read_plan(path: Path) -> FleetPlan:
    """The plan at ``path``; raises UserError as ``read_model``."""
    return _saved(path, FleetPlan, "plan of a fleet", "pool", "make it with `stash spot plan … -o PLAN`")


def is_fleet_plan(path: Path) -> bool:
    """Whether the file there begins as ``stash spot plan`` writes it; a plan of rentals has the same ending."""
    try:
        return read_up_to(path, 64).lstrip(b"{ \t\r\n").startswith(b'"fleet_schema"')
    except OSError:
        return False


def _saved(path: Path, kind: type[R], what: str, field: str, again: str) -> R:
    data = json_of(path, what, again)
    if not isinstance(data, dict) or "fleet_schema" not in data or field not in data:
        raise UserError(f"{path} is not a {what}; {again}")
    if isinstance(data["fleet_schema"], int) and data["fleet_schema"] > FLEET_SCHEMA:
        raise UserError(f"{path} is from a newer Stash (schema {data['fleet_schema']}); {again}, or upgrade Stash")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise UserError(f"{path} is damaged: {first_mistake(error)}; {again}") from error


def json_of(path: Path, what: str, again: str) -> Any:
    """Whatever JSON a file holds; raises UserError that says how to make it ``again``."""
    try:
        return json.loads(text_of(path, f"the {what}"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not a {what}: it is no JSON, or not all of it; {again}") from error


def model_name(runs: Path) -> str:
    """What the model of these runs is called if nobody says."""
    return f"{runs.stem}{FLEET_MODEL_SUFFIX}"


# Curves ----------------------------------------------------------------------------------------------------
# Loads and saves loss curves, ``*.curve.json``: what ``stash spot learn`` found and ``stash spot plan`` reads.
#
# Knows the versions of their schema. A curve has the manners of a profile's file (``documents``).

CURVE_MIGRATIONS: dict[int, Callable[[Document], Document]] = {}
"""``MIGRATIONS[n]`` turns a curve of schema n into one of schema n + 1."""
KIND = DocumentKind(
    name="loss curve",
    suffix=CURVE_SUFFIX,
    command="stash spot learn",
    version="curve_schema",
    is_not="is not a loss curve:",
    folder="is a folder, not a loss curve",
    others="; curves there, newest first:",
)


def save_curve(curve: LearnedCurve, path: str | os.PathLike[str]) -> None:
    """Write ``curve`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError."""
    documents.save_text(documents.lined(curve.model_dump(mode="json"), ("replays", "forms")), Path(path), KIND)


def load_curve(path: str | os.PathLike[str]) -> LearnedCurve:
    """The curve saved at ``path``, of this or any older schema; raises ArtefactError."""
    return documents.load_record(Path(path), KIND, LearnedCurve, CURVE_SCHEMA, CURVE_MIGRATIONS)


# Spotlogs --------------------------------------------------------------------------------------------------
# Loads and saves logs of runs, ``*.spotlog.json``: what ``stash spot run`` lived through.
#
# Knows the versions of their schema. A log has the manners of a profile's file (``documents``).

LOG_MIGRATIONS: dict[int, Callable[[Document], Document]] = {}
"""``MIGRATIONS[n]`` turns a log of schema n into one of schema n + 1."""
_KIND = DocumentKind(
    name="run's log",
    suffix=SPOT_LOG_SUFFIX,
    command="stash spot run",
    version="log_schema",
    is_not="is not a run's log:",
    folder="is a folder, not a run's log",
    others="; logs there, newest first:",
)


def save_spot_log(log: SpotLog, path: str | os.PathLike[str]) -> None:
    """Write ``log`` to ``path``, replacing it in one step, for its owner alone; raises ArtefactError."""
    documents.save_text(
        documents.lined(log.model_dump(mode="json"), ("stretches", "takeovers", "events")), Path(path), _KIND
    )


def load_spot_log(path: str | os.PathLike[str]) -> SpotLog:
    """The log saved at ``path``, of this or any older schema; raises ArtefactError."""
    return documents.load_record(Path(path), _KIND, SpotLog, SPOT_LOG_SCHEMA, LOG_MIGRATIONS)


def is_spot_log(word: str | os.PathLike[str]) -> bool:
    """Whether ``word`` is the name of a log's file: by its ending, or by how what is there begins."""
    return documents.is_one(word, _KIND)
