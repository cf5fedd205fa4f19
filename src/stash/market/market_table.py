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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stash.core.errors import UserError, one_line
from stash.core.files import is_longer_unpacked, opened_regular
from stash.core.printable import printable_line, shortened
from stash.core.units import nearest
from stash.market.market_trace import HOUR, NEVER, MarketOffer, MarketTrace, stamp, trace_of
from stash.predict.draws import Array, Integers

VERSION = 1
COLUMNS = ("at", "cloud", "region", "zone", "instance", "kind", "usd_per_hour", "available")
KINDS = ("spot", "on-demand")
MAX_GAP = 36 * HOUR
"""Where a file says nothing: AWS states every price once a day at least, and of a day some come hours late."""
EXAMPLE = "2020-02-27T17:42:36Z,aws,us-east-1,us-east-1b,p3.2xlarge,spot,1.1409,"
MAX_BYTES = 2**28
"""Of a market's text: two million rows."""
MAX_ROWS = 4_000_000
_MAX_LINE, _MAX_DOLLARS, _MAX_AVAILABLE = 2_000, 1e5, 1e6
_CURRENCIES = {"eur", "gbp", "jpy", "cny", "inr", "chf", "€", "£", "¥"}


def read_market(path: str | Path) -> MarketTrace:
    """The market in a file; raises UserError, with line and column where a line is wrong."""
    file = Path(path)
    try:
        with opened_regular(file) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            size = file.stat().st_size
            if size > MAX_BYTES or (packed and is_longer_unpacked(file, MAX_BYTES)):
                raise UserError(
                    f"{file} has more than {MAX_BYTES // 2**20} MiB of text; give the part of the market that "
                    "the job can run on"
                )
            opened: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            text = io.TextIOWrapper(opened, encoding="utf-8-sig", newline="")
            head = _head(text, file)
            rows = _by_line(text, head, file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{file} ends in the middle or is damaged ({one_line(error)}); copy it again") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not a text file; {_described()}") from error
    except OSError as error:
        raise UserError(f"cannot read the market {file}: {error.strerror or error}") from error
    return _trace(rows, head, str(file))


class _Head(NamedTuple):
    lines: int
    """Up to that with the names of columns."""
    order: tuple[int, ...]
    """Where each of ``COLUMNS`` stands; -1: nowhere."""
    max_gap: float
    sources: tuple[str, ...]


class _Rows(NamedTuple):
    """``[row]`` each, but for the offers."""

    offers: list[MarketOffer]
    offer: Integers
    at: Integers
    price: Array
    available: Array


def _described() -> str:
    return f"its lines look like {EXAMPLE} (docs/market.md)"


def _head(text: io.TextIOWrapper, file: Path) -> _Head:
    max_gap, sources, lines = MAX_GAP, [], 0
    while True:
        line = text.readline(_MAX_LINE)
        lines += 1
        if not line:
            raise UserError(f"{file} has no line with the names of columns; {_described()}")
        stripped = line.strip()
        if not stripped.startswith("#"):
            break
        name, _, value = stripped.lstrip("# ").partition(":")
        if name.startswith("stash market ") and name.removeprefix("stash market ").strip() != str(VERSION):
            raise UserError(f"{file}:{lines}: {shortened(stripped, 60)!r}: this Stash reads version {VERSION}")
        if name.strip() == "source":
            sources.append(printable_line(value.strip(), 200))
        if name.strip() == "max_gap":
            max_gap = _gap(value.strip(), file, lines)
    names = [name.strip() for name in stripped.split(",")]
    _check_names(names, file, lines)
    return _Head(
        lines, tuple(names.index(each) if each in names else -1 for each in COLUMNS), max_gap, tuple(sources)
    )


def _gap(text: str, file: Path, line: int) -> float:
    try:
        value = float(text.removesuffix("s").strip())
    except ValueError:
        value = -1.0
    if not 1 <= value <= 1e9:
        raise UserError(
            f"{file}:{line}: max_gap: {shortened(text, 40)!r} is no number of seconds from 1 on, like 129600"
        )
    return value


def _check_names(names: list[str], file: Path, line: int) -> None:
    for other in names:
        if other.endswith("_per_hour") and other != "usd_per_hour":
            raise UserError(
                f"{file}:{line}: {other}: prices are US dollars, in the column usd_per_hour; convert them"
            )
    for needed in COLUMNS[:7]:
        if needed not in names and needed not in ("zone", "region"):
            alike = nearest(needed, names, 1)
            hint = f" ({alike[0]} is another)" if alike else ""
            raise UserError(f"{file}:{line}: there is no column {needed}{hint}; {_described()}")


def _by_line(text: io.TextIOWrapper, head: _Head, file: Path) -> _Rows:
    """Every line read by itself; raises UserError."""
    numbers: dict[tuple[str, ...], int] = {}
    offers: list[MarketOffer] = []
    offer, at, price, available = array("q"), array("q"), array("d"), array("d")
    moments: dict[str, int] = {}
    last, width = 0, max(head.order) + 1
    try:
        for line, cells in enumerate(csv.reader(text), head.lines + 1):
            if not cells or cells[0].startswith("#"):
                continue
            if len(cells) < width:
                raise UserError(f"{file}:{line}: it has {len(cells)} columns of {width}; {_described()}")
            values = [cells[place].strip() if place >= 0 else "" for place in head.order]
            moment = moments.get(values[0])
            if moment is None:
                moment = moments[values[0]] = _moment(values[0], file, line)
                if len(moments) > 100_000:
                    moments.clear()
            if moment < last:
                why = f"{values[0]} is earlier than the line before ({stamp(last)}); sort the lines by time"
                raise UserError(f"{file}:{line}: at: {why}")
            last = moment
            key = tuple(values[1:6])
            if key not in numbers:
                offers.append(_offer(key, file, line))
                numbers[key] = len(offers) - 1
            offer.append(numbers[key])
            at.append(moment)
            price.append(_dollars(values[6], file, line))
            available.append(_count(values[7], file, line))
    except csv.Error as error:
        raise UserError(f"{file} is not a table: {error}; {_described()}") from error
    return _Rows(offers, *(np.array(each) for each in (offer, at, price, available)))


def _moment(text: str, file: Path, line: int) -> int:
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
        if when.tzinfo is None:
            raise UserError(f"{file}:{line}: at: {text} has no zone; write {text}Z if it is UTC")
        seconds = int(when.timestamp())
    except (ValueError, OverflowError):
        why = f"{shortened(text, 40)!r} is no time; write it like 2020-02-27T17:42:36Z"
        raise UserError(f"{file}:{line}: at: {why}") from None
    if not 0 < seconds < NEVER:
        raise UserError(f"{file}:{line}: at: {text} is before 1970 or after 2242")
    return seconds


def _offer(key: tuple[str, ...], file: Path, line: int) -> MarketOffer:
    offer = MarketOffer(*(printable_line(part, 100) for part in key))
    for name in ("cloud", "instance"):
        if not getattr(offer, name):
            raise UserError(f"{file}:{line}: {name}: it is empty; {_described()}")
    if not offer.place:
        raise UserError(f"{file}:{line}: zone: neither zone nor region is given; {_described()}")
    if offer.kind not in KINDS:
        raise UserError(f"{file}:{line}: kind: {shortened(offer.kind, 40)!r} is none; write spot or on-demand")
    return offer


def _dollars(text: str, file: Path, line: int) -> float:
    if not text:
        return float("nan")
    try:
        value = float(text)
    except ValueError:
        if any(word in text.lower() for word in _CURRENCIES):
            why = f"{shortened(text, 40)!r} is in another currency; convert it to US dollars"
        else:
            why = f"{shortened(text, 40)!r} is no price; write dollars an hour, like 1.1409"
        raise UserError(f"{file}:{line}: usd_per_hour: {why}") from None
    if not 0 <= value <= _MAX_DOLLARS:
        why = (
            "is negative"
            if value < 0
            else f"is no price of an hour: at most {_MAX_DOLLARS:,.0f} dollars are believed"
        )
        raise UserError(f"{file}:{line}: usd_per_hour: {text} {why}")
    return value


def _count(text: str, file: Path, line: int) -> float:
    if not text:
        return float("nan")
    if not text.isdecimal() or int(text) > _MAX_AVAILABLE:
        why = f"{shortened(text, 40)!r} is no number of machines; write 0, 1, 2 …, or nothing if nobody looked"
        raise UserError(f"{file}:{line}: available: {why}")
    return float(text)


def _trace(rows: _Rows, head: _Head, file: str) -> MarketTrace:
    if not len(rows.at):
        raise UserError(f"{file} has no rows; {_described()}")
    found = trace_of(rows.offers, rows.offer, rows.at, rows.price, rows.available, head.max_gap, head.sources)
    return found


def content(trace: MarketTrace) -> Iterator[str]:
    """The lines of a market file."""
    yield f"# stash market {VERSION}\n"
    yield from (f"# source: {source}\n" for source in trace.sources)
    yield f"# max_gap: {trace.max_gap:.0f}\n"
    yield ",".join(COLUMNS) + "\n"
    offer, at, price, available = stated_rows(trace)
    prefix = [",".join((each.cloud, each.region, each.zone, each.instance, each.kind)) for each in trace.offers]
    for number, moment, dollars, count in zip(
        offer.tolist(), at.tolist(), price.tolist(), available.tolist(), strict=True
    ):
        shown = "" if math.isnan(dollars) else f"{dollars:.10g}"
        yield f"{stamp(moment)},{prefix[number]},{shown},{'' if math.isnan(count) else f'{count:.0f}'}\n"


def stated_rows(trace: MarketTrace) -> tuple[Integers, Integers, Array, Array]:
    """The rows that say what a trace knows, in order of time: one a piece, stated again where it lasts long."""
    offer = np.repeat(np.arange(len(trace.offers)), np.diff(trace.first))
    watched = ~np.isnan(trace.price) | ~np.isnan(trace.available)
    stated = watched | (trace.at > 0)
    lasts = np.where(watched & (trace.ends < NEVER), trace.ends - trace.at, 0.0)
    again = (
        np.maximum(np.ceil(lasts / trace.max_gap).astype(np.int64), 1) if trace.max_gap else np.ones(len(lasts), int)
    )
    rows = np.repeat(np.flatnonzero(stated), again[stated])
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(again[stated])[:-1]])
    number = np.arange(len(rows)) - np.repeat(begins, again[stated])
    at = trace.at[rows] + number * int(trace.max_gap)
    order = np.lexsort((offer[rows], at))
    rows, at = rows[order], at[order]
    return offer[rows], at, trace.price[rows], trace.available[rows]


def written(trace: MarketTrace, path: Path) -> bytes:
    """The bytes of a file of that name, ``.csv`` or ``.csv.gz``."""
    text = "".join(content(trace)).encode()
    return gzip.compress(text, 6, mtime=0) if path.name.endswith(".gz") else text
