"""Charts of a study: combinations' stalls, cost against time, slow-down against batch, stalls against features."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from stash.core.formatting import dollars, quantity
from stash.core.ladder import STALLS
from stash.core.units import format_bytes, format_seconds
from stash.study.overview import what, where
from stash.study.paper_figures import Charts, hours_in_words
from stash.study.place_lines import lines
from stash.study.regression import Regression
from stash.study.results import StudyResult, front
from stash.study.sheet import UNKNOWN, Stretch, StudySheet, matrix_charts, table
from stash.study.status import HOUR
from stash.ui.charts.chart import Bar, Blank, Chart, Grid, Legend
from stash.ui.charts.panels import Panel, PanelPoint, panels

# Every combination's stalls in one picture, and cost against time with its front.

_STALLS = "Stalls of every combination"
_NO_STALL = ("compute",)
_THIN = 0.06
_ROOM = 0.92
"""Of a column's width: a stall that is the whole step."""


def stalls(shown: StudySheet) -> Charts:
    """Every combination's stalls, some places a chart."""
    if not shown.results:
        return (Blank("stalls", _STALLS, "no cell is done yet"),)
    present = [each for each in STALLS if any(each in result.shares for result in shown.results.values())]
    return matrix_charts(
        shown,
        "stalls",
        _STALLS,
        "The thin line is a whole step, and bars are what of it is stalled. Hatched: not measured. –: not part of "
        "the study.",
        lambda row, column, x, y: _stacked(shown.results[row, column], x, sum(y) / 2, y[1] - y[0]),
        lambda columns: table([result for (_, column), result in shown.results.items() if column in columns]),
        [Legend(stall, stall) for stall in present if stall not in _NO_STALL],
    )


def _stacked(result: StudyResult, x: Stretch, middle: float, high: float) -> Iterator[Bar]:
    """What is measured as negative has no place in it."""

    def upright(part: float) -> Stretch:
        return middle - part * high / 2, middle + part * high / 2

    wide = (x[1] - x[0]) * _ROOM
    begin = reached = x[0] + (1 - _ROOM) / 2 * (x[1] - x[0])
    yield Bar((begin, begin + wide), upright(_THIN), "plain", faint=True)
    for stall, share in result.shares.items():
        if stall not in _NO_STALL and share > 0:
            tip = f"{what(result.cell)} on {where(result.cell)}: {stall} {share:.1%} of the step"
            yield Bar((reached, reached + share * wide), upright(0.5), stall, tip)
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
        (hours_in_words, dollars),
        table(found),
    )


def _spent(result: StudyResult) -> tuple[float, float]:
    return (result.seconds_per_million or 0.0) / HOUR, result.dollars_per_million or 0.0


def _priced_point(result: StudyResult, best: Sequence[StudyResult]) -> PanelPoint:
    hours, money = _spent(result)
    tip = f"{what(result.cell)} on {where(result.cell)}: {hours_in_words(hours)} and {dollars(money)}"
    batch = "" if result.cell.batch is None else f", {result.cell.batch}"
    label = f"{where(result.cell)}{batch}" if result in best else ""
    return PanelPoint(hours, money, tip, label, firm=True, hollow=result not in best)


# The stall of exchanging against what models exchange: layers, and bytes of gradients; a panel a place.

_HOW = (
    "Interconnect and network stall of a step against {}: a dot a workload. The line is the paper's, with the other "
    "of layers and gradients at its mean over the place's models; beside the place, by how much it is off where all "
    "other models predict one (the median). Each place has axes of its own, whose ends are written; where they are "
    "ten times apart, by logarithms."
)
_MEGABYTE = 1e6
_ON_A_LINE = 24
"""Points, as a line is bent where axes are by logarithms."""
_NOTHING = "no cell on several devices says what its model exchanges"


def models(found: Sequence[StudyResult]) -> tuple[Chart | Blank, Chart | Blank]:
    """Against layers, and against bytes of gradients."""
    known = [each for each in found if each.exchange_seconds is not None and each.devices > 1]
    return (
        _against(known, "layers", "Stall against layers", "layers: trained tensors, each with a gradient",
                 lambda each: each.layers, lambda layers: f"{layers:.0f}", "layers"),
        _against(known, "gradient-bytes", "Stall against gradient bytes", "bytes of gradients",
                 lambda each: each.gradient_bytes, format_bytes, "gradients"),
    )  # fmt: skip


def _against(
    found: Sequence[StudyResult],
    name: str,
    title: str,
    of: str,
    read: Callable[[StudyResult], float | None],
    write: Callable[[float], str],
    term: str,
) -> Chart | Blank:
    shown, fitted = [], {where(first.cell): (first, line) for first, line in reversed(lines(found))}
    for place in dict.fromkeys(where(each.cell) for each in found):
        own = [(value, each) for each in found if where(each.cell) == place and (value := read(each)) is not None]
        if own and place in fitted:
            first, line = fitted[place]
            off = "" if line.error is None else f", off {line.error:.0%}"
            alike = [each for _, each in own if each.cell.batch == first.cell.batch]
            fits = [each for each in alike if each.layers and each.gradient_bytes]
            shown.append(Panel(f"{place}{off}", tuple(_points(own, write)), tuple(_along(fits, line, term))))
        elif own:
            shown.append(Panel(place, tuple(_points(own, write))))
    if not shown:
        return Blank(name, title, _NOTHING)
    return panels(shown, name, title, _HOW.format(of), (write, format_seconds), _table(found, title))


def _along(own: Sequence[StudyResult], line: Regression, term: str) -> Iterator[tuple[float, float]]:
    """The line against one of its terms, the other at the mean of these models."""
    layers, sizes = [float(each.layers or 0) for each in own], [each.gradient_bytes or 0.0 for each in own]
    values = layers if term == "layers" else sizes
    first, times = min(values), max(values) / min(values)
    for number in range(_ON_A_LINE):
        value = first * times ** (number / (_ON_A_LINE - 1))
        many, size = (value, fmean(sizes)) if term == "layers" else (fmean(layers), value)
        yield value, line.seconds(many, size)


def _points(own: Sequence[tuple[float, StudyResult]], write: Callable[[float], str]) -> Iterator[PanelPoint]:
    """A workload is named at one of its batches."""
    named: set[str] = set()
    for value, result in own:
        stall = result.exchange_seconds or 0.0
        tip = f"{what(result.cell)} on {where(result.cell)}: {format_seconds(stall)}, {write(value)}"
        label = "" if result.cell.workload in named else result.cell.workload
        named.add(result.cell.workload)
        yield PanelPoint(value, stall, tip, label)


def _table(found: Sequence[StudyResult], title: str) -> Grid:
    rows = tuple(
        (
            what(each.cell),
            where(each.cell),
            UNKNOWN if each.layers is None else str(each.layers),
            UNKNOWN if each.gradient_bytes is None else format_bytes(each.gradient_bytes),
            format_seconds(each.exchange_seconds or 0.0),
        )
        for each in found
    )
    return Grid(title, ("place", "layers", "gradients", "stall"), rows, frozenset({0, 1}), first="workload")


def line_grids(found: Sequence[StudyResult]) -> tuple[Grid, ...]:
    """The paper's line through the models of every place; none where too few were measured."""
    fitted = lines(found)
    rows = tuple(
        (
            where(first.cell),
            UNKNOWN if first.cell.batch is None else str(first.cell.batch),
            str(line.models),
            *(
                quantity(term.scaled(times), "seconds")
                for term, times in zip(line.terms, (1, 1, _MEGABYTE), strict=True)
            ),
            UNKNOWN if line.explained is None else f"{line.explained:.0%}",
            UNKNOWN if line.error is None else f"{line.error:.0%}",
        )
        for first, line in fitted
    )
    head = ("batch", "models", "always", "per layer", "per MB", "explained", "off, unseen")
    title = "The paper's line: the stall as a sum of what layers and gradients cost"
    return (Grid(title, head, rows, frozenset({0}), first="place"),) if rows else ()
