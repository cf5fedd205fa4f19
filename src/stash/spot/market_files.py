"""How many spot machines could be had, as a market file of ``stash market`` has it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import listed
from stash.market.market_table import read_market
from stash.market.market_trace import stamp
from stash.spot.records.risks import Obtainable

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
