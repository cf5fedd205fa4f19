"""The stall of exchanging against what models exchange: layers, and bytes of gradients; a panel a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stash.base.words.units import format_bytes, format_seconds
from stash.derive.study.feature_study import lines
from stash.derive.study.results import StudyResult
from stash.show.charts.chart import Blank, Chart
from stash.show.features import cost
from stash.show.grid import Grid
from stash.show.study.panels import Panel, PanelPoint, panels
from stash.show.study.sheet import UNKNOWN
from stash.show.study.view import what, where

_HOW = (
    "Interconnect and network stall of a step against {}: a dot a workload. Each place has axes of its own, whose "
    "ends are written; where they are ten times apart, by logarithms."
)
_NOTHING = "no cell on several devices says what its model exchanges"


def models(found: Sequence[StudyResult]) -> tuple[Chart | Blank, Chart | Blank]:
    """Against layers, and against bytes of gradients."""
    known = [each for each in found if each.exchange_seconds is not None and each.devices > 1]
    return (
        _against(known, "layers", "Stall against layers", "layers: trained tensors, each with a gradient",
                 lambda each: each.layers, lambda layers: f"{layers:.0f}"),
        _against(known, "gradient-bytes", "Stall against gradient bytes", "bytes of gradients",
                 lambda each: each.gradient_bytes, format_bytes),
    )  # fmt: skip


def _against(
    found: Sequence[StudyResult],
    name: str,
    title: str,
    of: str,
    read: Callable[[StudyResult], float | None],
    write: Callable[[float], str],
) -> Chart | Blank:
    shown = []
    for place in dict.fromkeys(where(each.cell) for each in found):
        own = [(value, each) for each in found if where(each.cell) == place and (value := read(each)) is not None]
        if own:
            shown.append(Panel(place, tuple(_points(own, write))))
    if not shown:
        return Blank(name, title, _NOTHING)
    return panels(shown, name, title, _HOW.format(of), (write, format_seconds), _table(found, title))


def _points(own: Sequence[tuple[float, StudyResult]], write: Callable[[float], str]) -> Iterator[PanelPoint]:
    """A workload is named at one of its batches."""
    named: set[str] = set()
    for value, result in own:
        stall = result.exchange_seconds or 0.0
        says = f"{what(result.cell)} on {where(result.cell)}: {format_seconds(stall)}, {write(value)}"
        label = "" if result.cell.workload in named else result.cell.workload
        named.add(result.cell.workload)
        yield PanelPoint(value, stall, says, label)


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
            *(cost(term.estimate, term.unit)[0] for term in line.terms),
            UNKNOWN if line.explained is None else f"{line.explained:.0%}",
            UNKNOWN if line.error is None else f"{line.error:.0%}",
        )
        for first, line in fitted
    )
    head = ("batch", "models", "always", "per layer", "per MB", "explained", "off, unseen")
    title = "The paper's line: the stall as a sum of what layers and gradients cost"
    below = "`stash features --from STUDY --job PROFILE` tells by it what another model would stall there."
    return (Grid(title, head, rows, frozenset({0}), below, "place"),) if rows else ()
