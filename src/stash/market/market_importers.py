"""What others wrote down of markets, as traces: SkyPilot's ticks, the catalog's prices."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, ValidationError

from stash.api import Catalog, OfferFilter, is_recent, price_age
from stash.core.errors import UserError
from stash.core.files import parse_json
from stash.core.records.base import Count, Number, PlainName, Record, first_mistake
from stash.core.user_files import text_of
from stash.market.market_table import MAX_GAP
from stash.market.market_trace import HOUR, MarketOffer, MarketTrace, merge_traces, trace_of

_DESCRIBED = (
    'write it like {"metadata": {"gap_seconds": 600}, "data": [4, 4, 0]} (docs/how-to/market.md)'
)
CONFIRM_SECONDS = 12 * HOUR
"""What was watched all the time is said again so often."""


class ImportedTrace(NamedTuple):
    """A trace, and what was left out of it."""

    trace: MarketTrace
    notes: list[str]


def _read_files(paths: Iterable[Path]) -> Iterator[tuple[Path, _Ticks]]:
    """Every JSON file of the paths, which may be folders; raises UserError."""
    for path in paths:
        files = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{path}: no *.json is there; {_DESCRIBED}")
        for file in files:
            try:
                yield (
                    file,
                    _Ticks.model_validate(parse_json(text_of(file, "the trace", _DESCRIBED))),
                )
            except ValidationError as error:
                raise UserError(
                    f"{file} is not a trace: {first_mistake(error)}; {_DESCRIBED}"
                ) from error
            except ValueError as error:
                raise UserError(
                    f"{file} is not a trace: it is no JSON, or not all of it; {_DESCRIBED}"
                ) from error


# SkyPilot's traces (skypilot-org/spot-traces): ticks in JSON, named after zone, GPU and count

_GPU_TYPES = {
    "v100_1": "p3.2xlarge",
    "v100_4": "p3.8xlarge",
    "v100_8": "p3.16xlarge",
    "k80_1": "p2.xlarge",
    "k80_8": "p2.8xlarge",
    "k80_16": "p2.16xlarge",
    "intel_64": "r5.16xlarge",
    "c3-88": "c3-highcpu-88",
}
_DATED = re.compile(r"(aws|gcp|azure)-(\d\d)-(\d\d)-(\d{4})")
_START = "2022-01-01T00:00:00Z"


class _TickFacts(Record):
    gap_seconds: Annotated[Number, Field(ge=1e-3, le=1e9)]
    start: PlainName | None = None


class _Ticks(Record):
    """How many machines could be had, tick by tick, and what one cost an hour, where that was written down."""

    model_config = ConfigDict(extra="forbid")

    metadata: _TickFacts
    data: tuple[Count, ...] = Field(min_length=1)
    prices: tuple[Number | None, ...] = ()


def import_skypilot(
    paths: Iterable[Path],
    prices: Mapping[str, float] | None = None,
    on_demand: Mapping[str, float] | None = None,
) -> ImportedTrace:
    """Traces by path; raises UserError.

    A tick is how many instances could be had, as the repository's README says. ``prices`` are dollars an hour of what
    has none in its file; ``on_demand`` adds such an offer in each region, always there. Both by instance.
    """
    traces = []
    notes = set()
    for file, ticks in _read_files(paths):
        offer, start = _parse_file_name(file)
        start = ticks.metadata.start or start
        if start is None:
            notes.add(f"{file.name} has no date: it begins at {_START}")
        try:
            when = datetime.fromisoformat(
                re.sub(r"\.\d+", "", (start or _START).strip()).replace("Z", "+00:00")
            )
            begin = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
        except (ValueError, OverflowError) as error:
            raise UserError(
                f"{file}: its start {start!r} is no time; write it like {_START}"
            ) from error
        count = len(ticks.data)
        gap = ticks.metadata.gap_seconds
        dollars = np.array(
            ticks.prices or [(prices or {}).get(offer.instance)] * count, dtype=float
        )
        if len(dollars) != count:
            raise UserError(f"{file}: there are {len(dollars)} prices for {count} ticks of data")
        if np.isnan(dollars).all():
            notes.add(
                f"no price of {offer.instance}; say it, like --spot-price {offer.instance}=0.918"
            )
        stated = np.stack([dollars, np.array(ticks.data, dtype=float)], axis=1)
        same = np.append(False, (np.diff(np.nan_to_num(stated, nan=-1.0), axis=0) == 0).all(axis=1))
        same[:: max(int(CONFIRM_SECONDS / gap), 1)] = False
        offers = [offer]
        rows = [(0, begin + tick * gap, *stated[tick]) for tick in np.flatnonzero(~same)]
        fixed = (on_demand or {}).get(offer.instance)
        if fixed is not None:
            offers.append(offer._replace(zone="", kind="on-demand"))
            rows += [(1, at, fixed, math.nan) for _, at, *_ in rows]
        rows += [(number, begin + count * gap, math.nan, math.nan) for number in range(len(offers))]
        traces.append(trace_of(offers, rows, MAX_GAP, ["skypilot-org/spot-traces"]))
    return ImportedTrace(merge_traces(traces), sorted(notes))


def _parse_file_name(file: Path) -> tuple[MarketOffer, str | None]:
    """Offer and beginning by the names of file and folders; raises UserError."""
    zone, _, kind = file.stem.partition("_")
    if not kind or not zone:
        raise UserError(
            f"{file}: a trace is named like us-west-2a_v100_1.json: zone, GPU and count"
        )
    cloud = "gcp" if re.search(r"\d-[a-z]$", zone) else "aws"
    start = None
    dated = next((match for part in file.parts if (match := _DATED.search(part))), None)
    if dated is not None:
        cloud, month, day, year = dated.groups()
        start = f"{year}-{month}-{day}"
    region = zone[:-2] if zone[-2:-1] == "-" else zone[:-1]
    return MarketOffer(cloud, region, zone, _GPU_TYPES.get(kind, kind), "spot"), start


# The catalog: today's prices


_ABSURD = 10.0
"""Times its on-demand price: a spot machine never cost that, so the unit is wrong, or a digit."""
LATELY_DAYS = 7
"""Published lists are some days old when they are refreshed."""


def refuse_absurd(trace: MarketTrace, catalog: Catalog, source: str) -> None:
    """Raise UserError for a price of more than ten times what the catalog knows of the instance on demand."""
    known: dict[tuple[str, str], float] = {}
    for offer in catalog.query(OfferFilter(kinds=("on-demand", "prior"))):
        key = (offer.instance.cloud, offer.instance.name)
        known[key] = max(known.get(key, 0.0), offer.dollars_per_hour)
    for number, each in enumerate(trace.offers):
        fixed = known.get((each.cloud, each.instance))
        highest = np.nan_to_num(trace.select_offers([number]).price).max()
        if fixed and highest > _ABSURD * fixed:
            raise UserError(
                f"{source}: usd_per_hour: {each.name} costs ${highest:g}/h, more than ten times its on-demand price "
                f"of ${fixed:g}/h; write dollars an hour of one machine"
            )


def current_prices(
    catalog: Catalog, now: datetime, most_days: float = math.inf
) -> tuple[MarketTrace, set[MarketOffer]]:
    """The catalog's prices as one look at ``now``, and the offers whose price may no longer be asked.

    A price of more than ``most_days`` was watched then, not now: it is left out, and so is one on spot that is not of
    these days. Raises UserError where all are.
    """
    numbers: dict[MarketOffer, int] = {}
    rows = []
    old = set()
    for offer in catalog.query(OfferFilter(kinds=("on-demand", "spot"), min_gpu_count=0.01)):
        named = MarketOffer(
            offer.instance.cloud, offer.region or "any", "", offer.instance.name, offer.kind
        )
        asked = price_age(offer.as_of, now.date())
        stale = offer.kind == "spot" and not offer.own and not is_recent(offer.as_of, now.date())
        if asked is None or asked.is_old or asked.most > most_days or stale:
            old.add(named)
        if not stale and (most_days == math.inf or (asked is not None and asked.most <= most_days)):
            number = numbers.setdefault(named, len(numbers))
            rows.append((number, now.timestamp(), offer.dollars_per_hour, math.nan))
    if not rows:
        raise UserError("the catalog has no price of these days; get some: `stash catalog refresh`")
    return trace_of(list(numbers), rows, MAX_GAP, ["stash market record"]), old
