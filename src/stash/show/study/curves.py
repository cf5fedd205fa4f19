"""Slow-down against batch size: a small curve for each workload and place, all on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log2
from typing import NamedTuple

from stash.derive.study.results import StudyResult
from stash.show.charts.chart import Axis, Blank, Chart, Dot, Drawn, Lane, Tile, Trail
from stash.show.grid import Grid
from stash.show.study.paper import Charts
from stash.show.study.sheet import UNKNOWN, StudySheet, anchor, missing_tile, places
from stash.show.study.view import where

_ROW = 62
"""Pixels."""


class BatchPoint(NamedTuple):
    """One batch."""

    batch: int
    slow_down: float
    result: StudyResult


BatchCurve = Sequence[BatchPoint]


def slow_down(shown: StudySheet) -> Charts:
    """How much longer a step takes than on one device alone, against the batch."""
    name, title = "batches", "Slow-down against batch size"
    curves: dict[tuple[str, str], list[BatchPoint]] = {}
    for result in shown.results.values():
        if result.cell.batch is not None and result.slow_down is not None:
            curves.setdefault((result.cell.workload, where(result.cell)), []).append(
                BatchPoint(result.cell.batch, result.slow_down, result)
            )
    if all(len(curve) < 2 for curve in curves.values()):
        return (Blank(name, title, "no workload was measured at several batches at one place; give `batches:`"),)
    by_workload = _by_workload(shown)
    in_order = {at: sorted(curve, key=lambda each: each.batch) for at, curve in curves.items()}
    return tuple(
        _curves(by_workload, columns, in_order, name if number == 1 else f"{name}-{number}", title)
        for number, columns in enumerate(by_workload.parts(), 1)
    )


def _by_workload(shown: StudySheet) -> StudySheet:
    """The same with all batches of a workload in one row, where any of them stands for it."""
    names = shown.workloads
    results = {(names[row], column): result for (row, column), result in shown.results.items()}
    missing = {(names[row], column): gone for (row, column), gone in shown.missing.items()}
    rows = tuple(dict.fromkeys(names[row] for row in shown.rows))
    return StudySheet(rows, shown.columns, results, missing, dict(zip(rows, rows, strict=True)))


def _curves(
    shown: StudySheet,
    columns: Sequence[str],
    curves: Mapping[tuple[str, str], BatchCurve],
    name: str,
    title: str,
) -> Chart:
    """One scale for all: from the smallest batch to the largest, and from no slow-down to the worst."""
    batches = [each.batch for curve in curves.values() for each in curve]
    worst = max(each.slow_down for curve in curves.values() for each in curve)
    marks: list[Drawn] = []
    for row, column, x, y in places(shown, columns):
        empty = missing_tile(shown, row, column, x, y)
        curve = curves.get((row, column))
        if empty is not None or curve is None:
            marks.append(empty or Tile(x, y, (UNKNOWN,), f"{row} on {column}: unknown", quiet=True))
            continue
        marks += _curve(curve, f"{row} on {column}", x, y, (min(batches), max(batches)), worst)
    told = {
        at: " · ".join(f"{each.slow_down:.2f}× at {each.batch}" for each in curve) for at, curve in curves.items()
    }
    grid_rows = tuple((row, *(told.get((row, column), UNKNOWN) for column in columns)) for row in shown.rows)
    return Chart(
        name=name,
        title=title,
        caption="",
        how=f"A step, as often as one device alone takes for its part: 1× is without any stall. Batches from "
        f"{min(batches)} on the left to {max(batches)} on the right; heights by logarithms from 1× to {worst:.3g}×. "
        "Hatched: not measured.",
        x=Axis("", ()),
        marks=tuple(marks),
        lanes=tuple(map(Lane, shown.rows)),
        columns=tuple(columns),
        row=_ROW,
        table=Grid(title, tuple(columns), grid_rows, frozenset(range(len(columns) + 1)), first="workload"),
    )


def _in_words(slow: float) -> str:
    return f"{slow:.0f}×" if slow >= 10 else f"{slow:.1f}×"


def _curve(
    curve: BatchCurve,
    where_it_is: str,
    x: tuple[float, float],
    y: tuple[float, float],
    ends: tuple[int, int],
    worst: float,
) -> Iterator[Drawn]:
    def place(batch: int, slow: float) -> tuple[float, float]:
        across = log2(batch / ends[0]) / log2(ends[1] / ends[0])
        up = log2(slow) / log2(worst) if worst > 1 else 0.0
        return x[0] + (0.1 + 0.8 * across) * (x[1] - x[0]), y[0] + (0.12 + 0.4 * max(0.0, up)) * (y[1] - y[0])

    first, last = curve[0], curve[-1]
    head = (y[0] + 0.62 * (y[1] - y[0]), y[1])
    ends_told = _in_words(first.slow_down), _in_words(last.slow_down)
    texts = (" → ".join(ends_told), "→".join(ends_told)) if len(curve) > 1 else ends_told[:1]
    says = ", ".join(f"{each.slow_down:.2f}× at batch {each.batch}" for each in curve)
    yield Tile(x, y, level=0.0)
    yield Tile(x, head, texts, f"{where_it_is}: {says}", link=f"#{anchor(first.result)}")
    yield Trail(tuple(place(each.batch, each.slow_down) for each in curve), "shade")
    for each in curve:
        yield Dot(
            *place(each.batch, each.slow_down), "shade", f"{where_it_is}, batch {each.batch}: {each.slow_down:.2f}×"
        )
