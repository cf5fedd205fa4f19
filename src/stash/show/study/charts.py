"""Every combination's stalls in one picture, and cost against time with its front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.base.ladder import STALLS
from stash.derive.study.estimate import HOUR
from stash.derive.study.results import StudyResult, front
from stash.show.charts.chart import Axis, Bar, Blank, Chart, Drawn, Lane, Legend, band
from stash.show.study.panels import Panel, PanelPoint, panels
from stash.show.study.paper import Charts, dollars_in_words, hours_in_words
from stash.show.study.sheet import StudySheet, missing_tile, places
from stash.show.study.table import table
from stash.show.study.view import what, where

_STALLS = "Stalls of every combination"
_NO_STALL = ("compute",)
_THIN = 0.06
_ROOM = 0.92
"""Of a column's width: a stall that is the whole step."""


def stalls(shown: StudySheet) -> Charts:
    """Every combination's stalls, some places a chart."""
    if not shown.results:
        return (Blank("stalls", _STALLS, "no cell is done yet"),)
    return tuple(_stalls(shown, columns, number) for number, columns in enumerate(shown.parts(), 1))


def _stalls(shown: StudySheet, columns: Sequence[str], number: int) -> Chart:
    """A row a workload at a batch, a column a place: what of the step is stalled."""
    marks: list[Drawn] = []
    for row, column, x, y in places(shown, columns):
        empty = missing_tile(shown, row, column, x, y)
        if empty is not None:
            marks.append(empty)
        else:
            marks += _stacked(shown.results[row, column], x, shown.rows.index(row), len(shown.rows))
    found = [result for (_, column), result in shown.results.items() if column in columns]
    present = [stall for stall in STALLS if any(stall in each.shares for each in found) and stall not in _NO_STALL]
    return Chart(
        name="stalls" if number == 1 else f"stalls-{number}",
        title=_STALLS,
        caption="",
        how="The thin line is a whole step, and bars are what of it is stalled. Hatched: not measured. –: not part "
        "of the study.",
        x=Axis("", ()),
        marks=tuple(marks),
        lanes=tuple(map(Lane, shown.rows)),
        columns=tuple(columns),
        keys=tuple(Legend(stall, stall) for stall in present),
        table=table(found),
    )


def _stacked(result: StudyResult, x: tuple[float, float], row: int, rows: int) -> Iterator[Bar]:
    """What is measured as negative has no place in it."""
    wide = (x[1] - x[0]) * _ROOM
    begin = reached = x[0] + (1 - _ROOM) / 2 * (x[1] - x[0])
    yield Bar((begin, begin + wide), band(row, rows, _THIN), "plain", faint=True)
    for stall, share in result.shares.items():
        if stall not in _NO_STALL and share > 0:
            says = f"{what(result.cell)} on {where(result.cell)}: {stall} {share:.1%} of the step"
            yield Bar((reached, reached + share * wide), band(row, rows), stall, says)
            reached += share * wide


def cost_against_time(found: Sequence[StudyResult]) -> Chart | Blank:
    """A panel a workload: a dot a combination that has a price, and the front as a line."""
    name, title = "cost-against-time", "Cost against time"
    priced = [each for each in found if each.dollars_per_million is not None]
    if not priced:
        return Blank(name, title, "nothing that is measured has a price")
    shown = []
    for workload in dict.fromkeys(each.cell.workload for each in priced):
        own = [each for each in priced if each.cell.workload == workload]
        best = front(own)
        points = tuple(_priced_point(each, best) for each in own)
        shown.append(Panel(workload, points, tuple(_spent(each) for each in best)))
    return panels(
        shown,
        name,
        title,
        "Of a million samples, as measured: left is faster, low is cheaper. The line is the workload's front; hollow "
        "dots are beaten in both by something on it. Each panel has its own axes, whose ends are written; where "
        "they are ten times apart, by logarithms.",
        (hours_in_words, dollars_in_words),
        table(found),
    )


def _spent(result: StudyResult) -> tuple[float, float]:
    return (result.seconds_per_million or 0.0) / HOUR, result.dollars_per_million or 0.0


def _priced_point(result: StudyResult, best: Sequence[StudyResult]) -> PanelPoint:
    hours, dollars = _spent(result)
    says = f"{what(result.cell)} on {where(result.cell)}: {hours_in_words(hours)} and {dollars_in_words(dollars)}"
    batch = "" if result.cell.batch is None else f", {result.cell.batch}"
    label = f"{where(result.cell)}{batch}" if result in best else ""
    return PanelPoint(hours, dollars, says, label, firm=True, hollow=result not in best)
