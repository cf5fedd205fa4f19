"""Files about spot machines: availability as ``stash market`` has it, AWS's Spot Advisor.

Turns them into records, or into one sentence that says what is wrong on which line. Stash ships none:
``spot-advisor-data.json`` of AWS's public bucket ``spot-bid-advisor`` has no licence and no date.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stash.core.errors import UnitError, UserError
from stash.core.files import parse_json, read_up_to
from stash.core.formatting import listed
from stash.core.printable import shortened
from stash.core.units import parse_interruptions
from stash.market.market_table import read_market
from stash.market.market_trace import stamp
from stash.spot.records.risks import InterruptionBand, Obtainable

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


_LONGEST_TICK, _SHORTEST_TICK = 600, 60
"""Seconds."""


def read_records(path: Path, names: Sequence[str]) -> dict[str, Obtainable]:
    """How many spot machines of these types could be had, by a market file, in ticks that are the same for all.

    A tick is ten minutes, or less where changes fall between; a minute at least. Types that are not in the file are
    left out; raises UserError if it has none of them, or one in several zones, or where some were not counted.
    """
    trace = read_market(path)
    rows: dict[str, slice] = {}
    for name in names:
        offers = [at for at, each in enumerate(trace.offers) if each.instance == name and each.kind == "spot"]
        if len(offers) > 1:
            zones = listed([trace.offers[at].place for at in offers])
            raise UserError(f"{path} has {name} in {zones}; give a market of one zone")
        if offers:
            rows[name] = slice(int(trace.first[offers[0]]) + 1, int(trace.first[offers[0] + 1]))
    if not rows:
        raise UserError(f"{path} has no spot machines of {listed(list(names))}; give a market that has one")
    begin = max(int(trace.at[each.start]) for each in rows.values())
    end = min(int(trace.at[each.stop - 1]) for each in rows.values())
    changes = np.unique(np.concatenate([trace.at[each] for each in rows.values()])) - begin
    changes = changes[(changes > 0) & (changes <= end - begin)]
    if not len(changes):
        raise UserError(f"{path}: {listed(list(rows))} were never watched at the same time")
    tick = max(int(np.gcd.reduce(changes, initial=_LONGEST_TICK)), _SHORTEST_TICK)
    moments = np.arange(begin, end, tick)
    found = {}
    for name, each in rows.items():
        counts = trace.available[each][np.searchsorted(trace.at[each], moments, side="right") - 1]
        unknown = np.flatnonzero(np.isnan(counts))
        if len(unknown):
            raise UserError(
                f"{path} has a gap at {stamp(float(moments[unknown[0]]))}: {name} could not be counted then; "
                "give a market without gaps"
            )
        found[name] = Obtainable(gap_seconds=tick, machines=tuple(counts.astype(int).tolist()))
    return found
