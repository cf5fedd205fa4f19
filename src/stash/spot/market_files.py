"""Files about spot markets: availability, lifetimes and prices that were watched, and AWS's Spot Advisor.

Turns them into records, or into one sentence that says what is wrong on which line. Traces are JSON as SkyPilot
publishes them, lives and prices are CSV. Published ones often come without a licence, so Stash ships none; nor
``spot-advisor-data.json`` of AWS's public bucket ``spot-bid-advisor``, which has no licence and no date.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from stash.core.errors import UnitError, UserError
from stash.core.files import read_up_to
from stash.core.printable import shortened
from stash.core.records.base import first_mistake
from stash.core.units import nearest, parse_interruptions
from stash.spot.records.risks import InterruptionBand, Obtainable, SpotPrices, WatchedLives
from stash.spot.spot_files import json_of, text_of

AGAIN = "get it with: curl -O https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
_MAX_BYTES = 64 * 2**20
_SYSTEM = "Linux"


def read_advisor(path: Path, region: str) -> dict[str, InterruptionBand | None]:
    """In which band each type's interruptions of last month were; ``None`` where it has no upper end, as >20 %.

    Raises UserError.
    """
    try:
        content = read_up_to(path, _MAX_BYTES)
        data = json.loads(content)
        labels = {each["index"]: str(each["label"]) for each in data["ranges"]}
        places: dict[str, Any] = data["spot_advisor"]
        types = {} if region not in places else dict(places[region][_SYSTEM])
        found = {str(name): _band(labels[each["r"]]) for name, each in types.items()}
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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


LIVES = ("seconds", "revoked")
PRICES = ("type", "time", "dollars_per_hour")
TRACE = 'write it like {"metadata": {"gap_seconds": 600}, "data": [4, 4, 0]}'
_TIME = "2026-11-01T00:00:00Z"
_KEYS = ("metadata", "data")
_MAX_LINES = 100_000
_LONGEST, _DEAREST = 1e9, 1e6
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


def read_obtainable(path: Path) -> Obtainable:
    """What could be had tick by tick, as ``{"metadata": {"gap_seconds": 600}, "data": [4, 0]}``; raises UserError."""
    data = json_of(path, "trace of machines", TRACE)
    metadata = data.get("metadata") if isinstance(data, dict) else None
    machines = data.get("data") if isinstance(data, dict) else None
    if not isinstance(metadata, dict) or not isinstance(machines, list):
        raise UserError(f"{path} is not a trace of machines; {TRACE}")
    strange = next((key for key in data if key not in _KEYS), None)
    if strange is not None:
        raise UserError(f"{path} is not a trace of machines: its {strange!r} is unknown; {TRACE}")
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
        return Obtainable(gap_seconds=metadata.get("gap_seconds"), machines=tuple(machines), start_seconds=begin)
    except ValidationError as error:
        mistake = first_mistake(error).replace("machines", "data", 1)
        raise UserError(f"{path} is not a trace of machines: {mistake}; {TRACE}") from error


def read_lives(path: Path) -> WatchedLives:
    """Machines that were watched, of a CSV with the columns seconds and revoked; raises UserError."""
    seconds, revoked = [], []
    for where, row in _rows(path, "the lives", LIVES, "5400,1"):
        lived, word = _number(row["seconds"]), row["revoked"].lower()
        if not 0 < lived <= _LONGEST:
            raise UserError(f"{where}: seconds {row['seconds']!r} is not a life; write it like 5400")
        if word not in (*_YES, *_NO):
            raise UserError(
                f"{where}: revoked {row['revoked']!r} is neither 1 (it was) nor 0 (it was still there when last seen)"
            )
        seconds.append(lived)
        revoked.append(word in _YES)
    return WatchedLives(seconds=tuple(seconds), revoked=tuple(revoked))


def read_prices(path: Path) -> dict[str, SpotPrices]:
    """Prices over time by type, of a CSV with the columns type, time and dollars_per_hour; raises UserError."""
    found: dict[str, dict[float, float]] = {}
    for where, row in _rows(path, "the prices", PRICES, f"g4dn.xlarge,{_TIME},0.158"):
        when, dollars = _moment(row["time"]), _number(row["dollars_per_hour"])
        if not row["type"]:
            raise UserError(f"{where}: it names no type; write it like g4dn.xlarge")
        if when is None:
            raise UserError(f"{where}: time {row['time']!r} is no time; write it like {_TIME}")
        if not 0 <= dollars <= _DEAREST:
            raise UserError(
                f"{where}: dollars_per_hour {row['dollars_per_hour']!r} is not a price; write it like 0.158"
            )
        if found.setdefault(row["type"], {}).setdefault(when, dollars) != dollars:
            raise UserError(f"{where}: {row['type']} has two prices at {row['time']}; keep those of one zone")
    return {
        name: SpotPrices(moments=tuple(sorted(series)), dollars=tuple(series[at] for at in sorted(series)))
        for name, series in found.items()
    }


def _rows(path: Path, what: str, columns: tuple[str, ...], example: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(where it stands, its cells by column) of every line but empty ones; raises UserError."""
    try:
        rows = list(csv.reader(io.StringIO(text_of(path, what), newline="")))
    except csv.Error as error:
        raise UserError(f"{path} is not a table: {error}; its first line is {','.join(columns)}") from error
    head = [name.strip() for name in rows[0]] if rows else []
    missing = next((name for name in columns if name not in head), None)
    if missing is not None:
        alike = nearest(missing, head, 1)
        hint = f" ({alike[0]} is another)" if alike else ""
        raise UserError(
            f"{path} has no column {missing}{hint}; its first line has to be {','.join(columns)}, and the others "
            f"like {example}"
        )
    filled = [(number, row) for number, row in enumerate(rows[1:], start=2) if any(cell.strip() for cell in row)]
    if not 0 < len(filled) <= _MAX_LINES:
        raise UserError(f"{path} has {len(filled):,} lines below its first; it needs 1 to {_MAX_LINES:,}")
    for number, row in filled:
        cells = dict(zip(head, (cell.strip() for cell in row), strict=False))
        yield f"{path} line {number}", {name: cells.get(name, "") for name in columns}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO time, UTC unless it says otherwise; ``None`` if it is none."""
    try:
        when = datetime.fromisoformat(text.strip().replace("Z", "+00:00").replace("z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
