"""Markets as files: ``*.market.csv[.gz]``, by hand or by a program.

Header comments say the version, the sources and ``max_gap``; then a row for each change, in order of time:

    # stash market 1
    # source: …
    # max_gap: 129600
    at,cloud,region,zone,instance,kind,usd_per_hour,available
    2020-02-27T17:42:36Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409,

Empty is "not watched": never zero. A row holds until the offer's next one, for ``max_gap`` seconds at most. A mistake
is named with its line and column.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from array import array
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from stash.core.errors import UserError, one_line
from stash.core.files import is_longer_unpacked, opened_regular
from stash.core.printable import printable_line, shorten_text
from stash.market.market_trace import HOUR, NEVER, MarketOffer, MarketTrace, iso_time, trace_of

VERSION = "# stash market 1"
COLUMNS = "at,cloud,region,zone,instance,kind,usd_per_hour,available"
MAX_GAP = 36 * HOUR
"""Where a file says nothing: AWS states every price once a day at least, and of a day some come hours late."""
MAX_BYTES = 2**28
"""Of a market's text: four million rows."""
_MAX_LINE = 2_000
_MAX_DOLLARS = 1e5
_MAX_AVAILABLE = 1e6
_DESCRIBED = "its lines look like 2020-02-27T17:42:36Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409, (docs/market.md)"


def read_market(path: str | Path) -> MarketTrace:
    """The market in a file; raises UserError, with line and column where a line is wrong."""
    file = Path(path)
    try:
        with opened_regular(file) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if file.stat().st_size > MAX_BYTES or (packed and is_longer_unpacked(file, MAX_BYTES)):
                raise UserError(
                    f"{file} has more than {MAX_BYTES // 2**20} MiB of text; give the part of the market that "
                    "the job can run on"
                )
            opened: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            return _read_trace(io.TextIOWrapper(opened, encoding="utf-8-sig", newline=""), file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"{file} ends in the middle or is damaged ({one_line(error)}); copy it again"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a text file; {_DESCRIBED}") from error
    except csv.Error as error:
        raise UserError(f"{file} is not a table: {error}; {_DESCRIBED}") from error
    except OSError as error:
        raise UserError(f"cannot read the market {file}: {error.strerror or error}") from error


def _read_trace(text: io.TextIOWrapper, file: Path) -> MarketTrace:
    line = 1
    max_gap = MAX_GAP
    sources = []
    while (head := text.readline(_MAX_LINE).strip()).startswith("#"):
        name, _, value = head.lstrip("# ").partition(":")
        if name.startswith("stash market ") and head != VERSION:
            raise UserError(
                f"{file}:{line}: {shorten_text(head, 60)!r}: this Stash reads version 1"
            )
        if name == "source":
            sources.append(printable_line(value.strip(), 200))
        if name == "max_gap":
            max_gap = _number(value, 1e9) or 0.0
            if not max_gap >= 1:
                why = f"{shorten_text(value.strip(), 40)!r} is no number of seconds from 1 on, like 129600"
                raise UserError(f"{file}:{line}: max_gap: {why}")
        line += 1
    if head != COLUMNS:
        why = f"{shorten_text(head, 100)!r} does not name the columns"
        raise UserError(f"{file}:{line}: {why}; write {COLUMNS}. Prices are US dollars")
    numbers: dict[tuple[str, ...], int] = {}
    rows = array("d")
    last = 0
    for at_line, cells in enumerate(csv.reader(text), line + 1):
        if not cells or cells[0].startswith("#"):
            continue
        try:
            key, moment, price, available = _read_row(cells)
            if moment < last:
                raise ValueError(
                    f"at: {cells[0]} is earlier than the line before ({iso_time(last)}); sort by time"
                )
        except ValueError as error:
            raise UserError(f"{file}:{at_line}: {error}; {_DESCRIBED}") from None
        last = moment
        rows.extend((numbers.setdefault(key, len(numbers)), moment, price, available))
    table = np.frombuffer(rows).reshape(-1, 4) if rows else np.full((1, 4), math.nan)
    if np.isnan(table[:, 2:]).all():
        raise UserError(f"{file} has no rows with a price or a number of machines; {_DESCRIBED}")
    offers = [MarketOffer(*(printable_line(part, 100) for part in key)) for key in numbers]
    return trace_of(offers, table, max_gap, sources)


def _read_row(cells: list[str]) -> tuple[tuple[str, ...], int, float, float]:
    """Offer, moment, price and number of machines; raises ValueError that names the column."""
    if len(cells) != 8:
        raise ValueError(f"it has {len(cells)} columns of 8")
    at, cloud, region, zone, instance, kind, price, available = (cell.strip() for cell in cells)
    if not cloud or not instance or not (region or zone):
        raise ValueError("it needs a cloud, a region or a zone, and an instance")
    if kind not in ("spot", "on-demand"):
        raise ValueError(f"kind: {shorten_text(kind, 40)!r} is none; write spot or on-demand")
    dollars = _number(price, _MAX_DOLLARS)
    if dollars is None:
        why = f"is no price of an hour from 0 to {_MAX_DOLLARS:,.0f} US dollars, like 1.1409"
        raise ValueError(f"usd_per_hour: {shorten_text(price, 40)!r} {why}")
    count = _number(available, _MAX_AVAILABLE)
    if count is None or count % 1 > 0:
        why = "is no number of machines; write 0, 1, 2 …, or nothing if nobody looked"
        raise ValueError(f"available: {shorten_text(available, 40)!r} {why}")
    return (cloud, region, zone, instance, kind), _moment(at), dollars, count


@lru_cache(maxsize=4096)
def _moment(text: str) -> int:
    """Raises ValueError."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
        seconds = int(when.timestamp())
    except (ValueError, OverflowError):
        raise ValueError(
            f"at: {shorten_text(text, 40)!r} is no time; write it like 2020-02-27T17:42:36Z"
        ) from None
    if when.tzinfo is None:
        raise ValueError(f"at: {text} has no zone; write {text}Z if it is UTC")
    if not 0 < seconds < NEVER:
        raise ValueError(f"at: {text} is before 1970 or after 2242")
    return seconds


def _number(text: str, most: float) -> float | None:
    """From 0 to ``most``; NaN where nothing is written, ``None`` for what is no such number."""
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= most else None


def market_lines(trace: MarketTrace) -> Iterator[str]:
    """The lines of a market file: a row for each piece, in order of time."""
    yield f"{VERSION}\n"
    yield from (f"# source: {source}\n" for source in trace.sources)
    yield f"# max_gap: {trace.max_gap:.0f}\n{COLUMNS}\n"
    offer = np.repeat(np.arange(len(trace.offers)), np.diff(trace.first))
    # the first pieces begin at 0 and say nothing
    order = np.lexsort((offer, trace.at))[len(trace.offers) :]
    rows = zip(
        *(each[order].tolist() for each in (offer, trace.at, trace.price, trace.available)),
        strict=True,
    )
    for number, moment, price, available in rows:
        shown = "" if math.isnan(price) else f"{price:.10g}"
        count = "" if math.isnan(available) else f"{available:.0f}"
        yield f"{iso_time(moment)},{','.join(trace.offers[number])},{shown},{count}\n"


def market_bytes(trace: MarketTrace, path: Path) -> bytes:
    """The bytes of a file of that name, ``.csv`` or ``.csv.gz``."""
    text = "".join(market_lines(trace)).encode()
    return gzip.compress(text, 6, mtime=0) if path.name.endswith(".gz") else text
