"""Markets that others wrote down, as traces: AWS's price changes, SkyPilot's ticks, today's prices of the
catalog. Each says where it is from; what an importer cannot place it counts, and never guesses.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, ValidationError, model_validator

from stash.catalog.facts import Age, age
from stash.catalog.offers import Catalog, OfferFilter
from stash.core.errors import UserError
from stash.core.files import parse_json
from stash.core.formatting import listed
from stash.core.printable import shortened
from stash.core.records.base import Count, Number, Record, first_mistake
from stash.core.user_files import text_of
from stash.market.market_table import MAX_GAP
from stash.market.market_trace import DAY, HOUR, MarketOffer, MarketTrace, stamp, trace_of

MAX_BYTES = 256 * 2**20
_DESCRIBED = "docs/market.md says what can be imported"
CONFIRM_SECONDS = 12 * HOUR
"""What was watched all the time is said again so often."""


@dataclass
class Imported:
    """A trace, and what was left out of it."""

    trace: MarketTrace
    notes: list[str] = field(default_factory=list)


@dataclass
class MarketRows:
    """Rows on their way into a trace."""

    source: str
    numbers: dict[MarketOffer, int] = field(default_factory=dict)
    offer: list[int] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    price: list[float] = field(default_factory=list)
    available: list[float] = field(default_factory=list)

    def add(self, offer: MarketOffer, at: float, price: float | None = None, available: float | None = None) -> None:
        self.offer.append(self.numbers.setdefault(offer, len(self.numbers)))
        self.at.append(int(at))
        self.price.append(float("nan") if price is None else price)
        self.available.append(float("nan") if available is None else available)

    def end(self, at: float) -> None:
        """From here on nothing was watched."""
        for offer in list(self.numbers):
            self.add(offer, at)

    def trace(self) -> MarketTrace:
        columns = (np.array(self.offer, dtype=np.int64), np.array(self.at, dtype=np.int64))
        values = (np.array(self.price, dtype=float), np.array(self.available, dtype=float))
        return trace_of(list(self.numbers), *columns, *values, MAX_GAP, (self.source,))


def utc_seconds(text: str) -> float:
    """Of a time in UTC unless it says otherwise; raises ValueError."""
    when = datetime.fromisoformat(re.sub(r"\.\d+", "", text.strip()).replace("Z", "+00:00"))
    return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()


# AWS, as `aws ec2 describe-spot-price-history` prints it


def import_aws(paths: Iterable[Path]) -> Imported:
    """JSON files, or folders of them; raises UserError. Only Linux's prices are taken."""
    table, other, newest = MarketRows("AWS: describe-spot-price-history"), 0, 0.0
    files = _files(paths, ".json")
    for file in files:
        for entry in _history(file):
            try:
                zone, kind = str(entry["AvailabilityZone"]), str(entry.get("ProductDescription", "Linux/UNIX"))
                price, at = float(entry["SpotPrice"]), utc_seconds(str(entry["Timestamp"]))
                instance = str(entry["InstanceType"])
            except (KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"{file} has a price without {error}; `aws ec2 describe-spot-price-history` has all"
                ) from error
            if not kind.startswith("Linux"):
                other += 1
                continue
            if not 0 <= price < 1e5:
                raise UserError(f"{file}: {instance} in {zone} costs ${price:g}/h: that is no price")
            newest = max(newest, at)
            table.add(MarketOffer("aws", zone.rstrip("abcdefghijklmnop"), zone, instance, "spot"), at, price)
    if not table.at:
        raise UserError(f"{listed([str(each) for each in files])} hold no price of a spot machine; {_DESCRIBED}")
    table.end(newest + 1)
    return Imported(table.trace(), [f"{other:,} prices of other systems than Linux left out"] if other else [])


def _history(file: Path) -> list[Mapping[str, Any]]:
    try:
        data = parse_json(text_of(file, "the price history", _DESCRIBED, MAX_BYTES))
    except ValueError as error:
        raise UserError(
            f"{file} is no JSON, or not all of it; get it again with `aws ec2 describe-spot-price-history`"
        ) from error
    found = data.get("SpotPriceHistory") if isinstance(data, dict) else None
    if not isinstance(found, list):
        raise UserError(f"{file} has no SpotPriceHistory; `aws ec2 describe-spot-price-history` prints one")
    return found


def _files(paths: Iterable[Path], ending: str) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(path.rglob(f"*{ending}"))
        elif path.exists():
            found.append(path)
        else:
            raise UserError(f"{path}: there is no such file or folder")
    if not found:
        raise UserError(f"{listed([str(each) for each in paths])}: no *{ending} is there; {_DESCRIBED}")
    return found


# SkyPilot's traces (skypilot-org/spot-traces): ticks in JSON, named after zone, GPU and count

AWS_TYPES = {("v100", 1): "p3.2xlarge", ("v100", 4): "p3.8xlarge", ("v100", 8): "p3.16xlarge"}
AWS_TYPES |= {("k80", 1): "p2.xlarge", ("k80", 8): "p2.8xlarge", ("k80", 16): "p2.16xlarge"}
_GPU_TYPES = {
    **{f"{gpu}_{count}": name for (gpu, count), name in AWS_TYPES.items()},
    "intel_64": "r5.16xlarge",
    "c3-88": "c3-highcpu-88",
}
_DATED = re.compile(r"(?P<cloud>aws|gcp|azure)-(?P<month>\d\d)-(?P<day>\d\d)-(?P<year>\d{4})")
_START = "2022-01-01T00:00:00Z"


_TICKS = 'write it like {"metadata": {"gap_seconds": 600}, "data": [4, 4, 0]}'


class _Ticks(Record):
    """How many machines could be had, tick by tick."""

    gap_seconds: Annotated[Number, Field(ge=1e-3, le=1e9)]
    data: tuple[Count, ...] = Field(min_length=1)
    start_seconds: Number | None
    """When the first tick began, since 1970; ``None`` if unstated."""
    prices: tuple[Number | None, ...]
    """What one cost an hour in each tick, where that was written down: as many as ``data``, or none."""

    @model_validator(mode="after")
    def _a_price_a_tick(self) -> _Ticks:
        if self.prices and len(self.prices) != len(self.data):
            raise ValueError(f"prices: there are {len(self.prices)} for {len(self.data)} ticks of data")
        return self


def _read_ticks(path: Path) -> _Ticks:
    """What could be had, as ``{"metadata": {"gap_seconds": 600}, "data": [4, 0]}``; raises UserError."""
    try:
        content = parse_json(text_of(path, "the trace of machines", _DESCRIBED))
    except ValueError as error:
        raise UserError(f"{path} is not a trace of machines: it is no JSON, or not all of it; {_TICKS}") from error
    metadata = content.get("metadata") if isinstance(content, dict) else None
    machines = content.get("data") if isinstance(content, dict) else None
    if not isinstance(metadata, dict) or not isinstance(machines, list):
        raise UserError(f"{path} is not a trace of machines; {_TICKS}")
    strange = next((key for key in content if key not in ("metadata", "data", "prices")), None)
    if strange is not None:
        raise UserError(f"{path} is not a trace of machines: its {strange!r} has no known meaning; {_TICKS}")
    if any(each is None for each in machines):
        gap = machines.index(None)
        raise UserError(
            f"{path} has a gap at tick {gap}: what could be had then is unknown; give a trace without gaps"
        )
    start = metadata.get("start")
    try:
        begin = None if start is None else utc_seconds(str(start))
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"{path}: its start {shortened(str(start), 60)!r} is no time; write it like 2026-11-01T00:00:00Z"
        ) from error
    try:
        return _Ticks(
            gap_seconds=metadata.get("gap_seconds"),
            data=tuple(machines),
            start_seconds=begin,
            prices=tuple(content.get("prices") or ()),
        )
    except ValidationError as error:
        raise UserError(f"{path} is not a trace of machines: {first_mistake(error)}; {_TICKS}") from error


def import_skypilot(
    paths: Iterable[Path],
    prices: Mapping[str, float] | None = None,
    on_demand: Mapping[str, float] | None = None,
) -> Imported:
    """Traces by path; raises UserError.

    A tick is how many instances could be had, as the repository's README says. ``prices`` are dollars an hour of what
    has none in its file; ``on_demand`` adds such an offer in each region, always there. Both by instance.
    """
    files = _files(paths, ".json")
    table = MarketRows("skypilot-org/spot-traces")
    notes: Counter[str] = Counter()
    ends: dict[MarketOffer, float] = {}
    fixed: dict[MarketOffer, tuple[float, float, float]] = {}
    for file in files:
        offer, begin, dated = _named(file)
        ticks = _read_ticks(file)
        begin = ticks.start_seconds if ticks.start_seconds is not None else begin
        if not dated and ticks.start_seconds is None:
            notes[f"has no date in its folder's name: it is taken to begin at {_START}"] += 1
        machines = np.array(ticks.data, dtype=float)
        dollars: Sequence[float | None] = ticks.prices
        if not dollars or all(each is None for each in dollars):
            given = (prices or {}).get(offer.instance)
            if given is None:
                notes[f"has no prices; say what {offer.instance} cost, like --spot-price {offer.instance}=0.918"] += 1
            dollars = [given] * len(machines)
        end = begin + len(machines) * ticks.gap_seconds
        _ticks(table, offer, begin, ticks.gap_seconds, machines.tolist(), dollars)
        ends[offer] = max(ends.get(offer, 0.0), end)
        if (on_demand or {}).get(offer.instance) is not None:
            other = offer._replace(zone="", kind="on-demand")
            was = fixed.get(other, (begin, end, 0.0))
            fixed[other] = (min(begin, was[0]), max(end, was[1]), (on_demand or {})[offer.instance])
    for offer, end in ends.items():
        table.add(offer, end)
    for offer, (begin, end, price) in fixed.items():
        for at in np.arange(begin, end, DAY).tolist():
            table.add(offer, at, price)
        table.add(offer, end)
    lines = [f"{count} of {len(files)} traces: {text}" for text, count in notes.items()]
    return Imported(table.trace(), lines)


def _ticks(
    table: MarketRows,
    offer: MarketOffer,
    begin: float,
    gap: float,
    machines: Sequence[float],
    dollars: Sequence[float | None],
) -> None:
    """A row for each change, and one every ``CONFIRM_SECONDS``."""
    stated: tuple[float, float | None] | None = None
    stated_at = begin
    for number, now in enumerate(zip(machines, dollars, strict=True)):
        at = begin + number * gap
        if now != stated or at - stated_at >= CONFIRM_SECONDS:
            table.add(offer, at, now[1], now[0])
            stated, stated_at = now, at


def _named(file: Path) -> tuple[MarketOffer, float, bool]:
    """Offer and beginning by the names of file and folders; raises UserError."""
    zone, _, kind = file.stem.partition("_")
    if not kind or not zone:
        raise UserError(f"{file}: a trace is named like us-west-2a_v100_1.json: zone, GPU and count")
    dated = next((match for part in file.parts if (match := _DATED.search(part))), None)
    begin = utc_seconds(_START)
    cloud = "gcp" if re.search(r"\d-[a-z]$", zone) else "aws"
    if dated is not None:
        cloud = dated["cloud"]
        day = datetime(int(dated["year"]), int(dated["month"]), int(dated["day"]), tzinfo=timezone.utc)
        begin = day.timestamp()
    region = zone[:-2] if zone[-2:-1] == "-" else zone[:-1]
    return MarketOffer(cloud, region, zone, _GPU_TYPES.get(kind, kind), "spot"), begin, dated is not None


# The catalog: today's prices


_ABSURD = 10.0
"""Times its on-demand price: a spot machine never cost that, so the unit is wrong, or a digit."""


def refuse_absurd(trace: MarketTrace, catalog: Catalog, source: str) -> None:
    """Raise UserError for a price of more than ten times what the catalog knows of the instance on demand."""
    known: dict[tuple[str, str], float] = {}
    for offer in catalog.query(OfferFilter(kinds=("on-demand", "prior"))):
        key = (offer.instance.cloud, offer.instance.name)
        known[key] = max(known.get(key, 0.0), offer.dollars_per_hour)
    for number, each in enumerate(trace.offers):
        fixed = known.get((each.cloud, each.instance))
        rows = slice(trace.first[number], trace.first[number + 1])
        absurd = np.flatnonzero(trace.price[rows] > _ABSURD * fixed) if fixed else np.zeros(0, dtype=np.int64)
        if len(absurd):
            price, at = float(trace.price[rows][absurd[0]]), stamp(float(trace.at[rows][absurd[0]]))
            raise UserError(
                f"{source}: usd_per_hour: {each.name} costs ${price:g}/h at {at}, more than ten times its on-demand "
                f"price of ${fixed:g}/h; write dollars an hour of one machine"
            )


def current(catalog: Catalog, now: datetime) -> MarketTrace:
    """The catalog's prices as one look at ``now``, however old they are."""
    return _look(((named, dollars) for named, dollars, _ in _asked(catalog, now)), now)


def asked_lately(catalog: Catalog, now: datetime) -> tuple[MarketTrace, int]:
    """What ``stash market record`` adds to its file: prices of these days as one look at ``now``, and how many not.

    A price of another year was watched then, not now. Raises UserError where all are.
    """
    known = list(_asked(catalog, now))
    lately = [(named, dollars) for named, dollars, age in known if age is not None and age.most <= _LATELY_DAYS]
    return _look(lately, now), len(known) - len(lately)


def outdated(catalog: Catalog, now: datetime) -> set[MarketOffer]:
    """Offers whose price may no longer be asked."""
    return {named for named, _, age in _asked(catalog, now) if age is None or age.is_old}


_LATELY_DAYS = 7
"""Published lists are some days old when they are refreshed."""


def _asked(catalog: Catalog, now: datetime) -> Iterator[tuple[MarketOffer, float, Age | None]]:
    for offer in catalog.query(OfferFilter(kinds=("on-demand", "spot"), min_gpu_count=0.01)):
        named = MarketOffer(offer.instance.cloud, offer.region or "any", "", offer.instance.name, offer.kind)
        yield named, offer.dollars_per_hour, age(offer.as_of, now.date())


def _look(prices: Iterable[tuple[MarketOffer, float]], now: datetime) -> MarketTrace:
    table = MarketRows("stash market record")
    for named, dollars in prices:
        table.add(named, now.timestamp(), dollars)
    if not table.at:
        raise UserError("the catalog has no price of these days; get some: `stash catalog refresh`")
    return table.trace()
