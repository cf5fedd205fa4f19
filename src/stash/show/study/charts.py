"""A study's figures: every combination's stalls in one picture, and cost against time with its front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from math import ceil

from stash.base.ladder import STALLS
from stash.base.words.quantities import quantity
from stash.base.words.units import pace
from stash.derive.study.estimate import HOUR
from stash.derive.study.results import StudyResult, front
from stash.show.charts.axes import extent, plain_axis
from stash.show.charts.chart import Axis, Bar, Blank, Chart, Dot, Drawn, Lane, Legend, Tick, Trail, band
from stash.show.grid import Grid
from stash.show.study.view import what, where

_TITLE = "Stalls of every combination"
_NO_STALL = ("compute",)
_COLUMNS = 5
"""Places in one chart: as many as their names have room for."""
_THIN = 0.06
_ROOM = 0.9
"""Of a column's width: a stall that is the whole step."""
_COLOURS = ("compute", "interconnect", "contention", "prep", "network", "transfer", "fetch")


def stalls(found: Sequence[StudyResult]) -> tuple[Chart | Blank, ...]:
    """Every combination's stalls, some places a chart."""
    if not found:
        return (Blank("stalls", _TITLE, "no cell is done yet"),)
    columns = list(dict.fromkeys(where(each.cell) for each in found))
    size = ceil(len(columns) / ceil(len(columns) / _COLUMNS))  # so that no chart has one column alone
    parts = [columns[first : first + size] for first in range(0, len(columns), size)]
    return tuple(_stalls(found, part, number) for number, part in enumerate(parts, 1))


def _stalls(every: Sequence[StudyResult], columns: Sequence[str], number: int) -> Chart:
    """A row a workload at a batch, a column a place: what of the step is stalled; what is missing is empty."""
    rows = list(dict.fromkeys(what(each.cell) for each in every))
    found = [each for each in every if where(each.cell) in columns]
    wide = _ROOM / len(columns)
    marks: list[Drawn] = []
    for each in found:
        row, begin = rows.index(what(each.cell)), columns.index(where(each.cell)) / len(columns)
        marks.append(Bar((begin, begin + wide), band(row, len(rows), _THIN), "plain", faint=True))
        reached = begin
        for stall, share in each.shares.items():
            if stall not in _NO_STALL and share > 0:
                end = reached + share * wide
                says = f"{what(each.cell)} on {where(each.cell)}: {stall} {share:.1%} of the step"
                marks.append(Bar((reached, end), band(row, len(rows)), stall, says))
                reached = end
    present = [stall for stall in STALLS if any(stall in each.shares for each in found) and stall not in _NO_STALL]
    return Chart(
        name="stalls" if number == 1 else f"stalls-{number}",
        title=_TITLE,
        caption="",
        how="A column is a place, and the thin line in it a whole step: bars are what of it is stalled. Where there "
        "is no line, nothing was measured.",
        x=Axis("share of the step", tuple(Tick(n / len(columns), text) for n, text in enumerate(columns))),
        marks=tuple(marks),
        lanes=tuple(Lane(row) for row in rows),
        keys=tuple(Legend(stall, stall) for stall in present),
        table=table(found),
    )


def cost_against_time(found: Sequence[StudyResult]) -> Chart | Blank:
    """A dot a combination that has a price, and each workload's front as a line."""
    name, title = "cost-against-time", "Cost against time"
    priced = [each for each in found if each.dollars_per_million is not None]
    if not priced:
        return Blank(name, title, "nothing that is measured has a price")
    hours = {id(each): (each.seconds_per_million or 0.0) / HOUR for each in priced}
    x, y = extent(hours.values()), extent([each.dollars_per_million for each in priced])
    workloads = list(dict.fromkeys(each.cell.workload for each in priced))
    marks: list[Drawn] = []
    for workload, colour in zip(workloads, _colours(len(workloads)), strict=True):
        own = [each for each in priced if each.cell.workload == workload]
        best = front(own)
        if len(best) > 1:
            points = tuple((x.at(hours[id(each)]), y.at(each.dollars_per_million or 0.0)) for each in best)
            marks.append(Trail(points, colour))
        for each in own:
            dollars = each.dollars_per_million or 0.0
            says = f"{what(each.cell)} on {where(each.cell)}: {hours[id(each)]:.2f} h and ${dollars:.2f}"
            marks.append(Dot(x.at(hours[id(each)]), y.at(dollars), colour, says, hollow=each not in best))
    return Chart(
        name=name,
        title=title,
        caption="",
        how="Of a million samples: left is faster, low is cheaper. The line is a workload's front; hollow dots are "
        "beaten in both by something on it.",
        x=plain_axis(x, "hours for a million samples"),
        y=plain_axis(y, "dollars for a million samples"),
        marks=tuple(marks),
        keys=tuple(Legend(c, w) for w, c in zip(workloads, _colours(len(workloads)), strict=True)),
        table=table(found),
    )


def _colours(count: int) -> list[str]:
    return list(islice(cycle(_COLOURS), count))


def table(found: Sequence[StudyResult]) -> Grid:
    """Every combination that is measured."""
    present = [stall for stall in STALLS if any(stall in each.shares for each in found)]
    rows = tuple(
        (
            f"{what(each.cell)} on {where(each.cell)}",
            str(each.repeats),
            quantity(each.step, "seconds"),
            "unknown" if each.samples_per_second is None else pace(each.samples_per_second),
            *(f"{each.shares[stall]:.1%}" if stall in each.shares else "unknown" for stall in present),
            "no price" if each.dollars_per_million is None else f"${each.dollars_per_million:.2f}",
        )
        for each in found
    )
    return Grid(
        title="Every combination: shares of the step, mean over repeats",
        first="combination",
        head=("repeats", "step", "samples/s", *present, "$/million samples"),
        rows=rows,
        texts=frozenset({0}),
    )
