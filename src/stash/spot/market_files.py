"""Files about spot markets: availability and lifetimes that were watched, and AWS's Spot Advisor.

Turns them into records, or into one sentence that says what is wrong on which line. Traces are JSON as SkyPilot
publishes them, lives are CSV. Published ones often come without a licence, so Stash ships none; nor
``spot-advisor-data.json`` of AWS's public bucket ``spot-bid-advisor``, which has no licence and no date.
"""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from stash.core.errors import UnitError, UserError
from stash.core.files import parse_json, read_up_to
from stash.core.printable import shortened
from stash.core.records.base import Record, first_mistake
from stash.core.units import parse_interruptions
from stash.core.user_files import load_rows, text_of
from stash.spot.records.risks import InterruptionBand, Obtainable
from stash.spot.risk.lifetimes import ObservedLives
from stash.spot.spot_files import DESCRIBED

AGAIN = "get it with: curl -O https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
_MAX_BYTES = 64 * 2**20
_SYSTEM = "Linux"


def read_advisor(path: Path, region: str) -> dict[str, InterruptionBand | None]:
    """Read in which band each type's interruptions of last month were; ``None`` where it has no upper end, as >20 %.

    Raises UserError.
    """
    try:
        content = read_up_to(path, _MAX_BYTES)
        data = parse_json(content)
        labels = {each["index"]: str(each["label"]) for each in data["ranges"]}
        places: dict[str, Any] = data["spot_advisor"]
        types = {} if region not in places else dict(places[region][_SYSTEM])
        found = {str(name): _band(labels[each["r"]]) for name, each in types.items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not the file of AWS's Spot Instance Advisor; {AGAIN}") from error
    if not found:
        raise UserError(f"{path} has nothing of the region {shortened(region, 60)}; {AGAIN}")
    return found


def _band(label: str) -> InterruptionBand | None:
    if label.strip().startswith(">"):
        return None
    try:
        low, high = parse_interruptions(f"{label}/month")
    except UnitError as error:
        raise ValueError(label) from error
    return InterruptionBand(low=low, high=high)


TRACE = 'write it like {"metadata": {"gap_seconds": 600}, "data": [4, 4, 0]}'
_TIME = "2026-11-01T00:00:00Z"


def read_obtainable(path: Path) -> Obtainable:
    """What could be had tick by tick, as ``{"metadata": {"gap_seconds": 600}, "data": [4, 0]}``; raises UserError."""
    try:
        data = parse_json(text_of(path, "the trace of machines", DESCRIBED))
    except ValueError as error:
        raise UserError(f"{path} is not a trace of machines: it is no JSON, or not all of it; {TRACE}") from error
    metadata = data.get("metadata") if isinstance(data, dict) else None
    machines = data.get("data") if isinstance(data, dict) else None
    if not isinstance(metadata, dict) or not isinstance(machines, list):
        raise UserError(f"{path} is not a trace of machines; {TRACE}")
    strange = next((key for key in data if key not in ("metadata", "data", "prices")), None)
    if strange is not None:
        raise UserError(f"{path} is not a trace of machines: its {strange!r} has no known meaning; {TRACE}")
    if any(each is None for each in machines):
        gap = machines.index(None)
        raise UserError(
            f"{path} has a gap at tick {gap}: what could be had then is unknown; give a trace without gaps"
        )
    start = metadata.get("start")
    begin = _moment(start) if isinstance(start, str) else None
    if start is not None and begin is None:
        raise UserError(f"{path}: its start {shortened(str(start), 60)!r} is no time; write it like {_TIME}")
    try:
        return Obtainable(
            gap_seconds=metadata.get("gap_seconds"),
            machines=tuple(machines),
            start_seconds=begin,
            dollars=tuple(data.get("prices") or ()),
        )
    except ValidationError as error:
        why = first_mistake(error).replace("machines", "data", 1).replace("dollars", "prices", 1)
        raise UserError(f"{path} is not a trace of machines: {why}; {TRACE}") from error


class _Life(Record):
    seconds: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, examples=["5400"])]
    revoked: Annotated[bool, Field(examples=["1 (it was) or 0 (it was still there when last seen)"])]


def read_lives(path: Path) -> ObservedLives:
    """Machines that were watched, of a CSV with the columns seconds and revoked; raises UserError."""
    rows = [row for _, row in load_rows(path, _Life, "the lives", DESCRIBED)]
    return ObservedLives(np.array([row.seconds for row in rows]), np.array([row.revoked for row in rows]))


def _moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO time, UTC unless it says otherwise; ``None`` if it is none."""
    try:
        when = datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
