"""A sweep as a page: one curve of forecasts with their 95 % intervals, or one for each value of a second option.

One quantity is drawn: samples per second, or the step where samples are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stash.core.formatting import join_names, plus_minus
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, scale_for
from stash.predict.forecast import Forecast
from stash.ui.charts.builders import (
    CURVES,
    Chart,
    PlotCurve,
    PlotPoint,
    Ruler,
    level,
    make_ruler,
    plane_chart,
)
from stash.ui.charts.chart import Axis, Extent, Grid, Legend, Tick
from stash.ui.page import Chapter, Page
from stash.whatif.answers import next_bottleneck
from stash.whatif.sweep import Point, SweptOption

_RATE = ((1.0, "samples/s"),)


class ShownSweep(NamedTuple):
    """A sweep, and the units in which it is shown."""

    workload: str
    typed: dict[str, str]
    over: Sequence[SweptOption]
    points: Sequence[Point]
    measured: float
    """The profile's own rate, or step."""
    rated: bool
    """Whether rates are shown, since every point has one; else steps."""
    scale: Scale
    steps: Scale

    @property
    def question(self) -> str:
        """``"over nodes and network, with batch 32"``."""
        fixed = join_names([f"{name} {text}" for name, text in self.typed.items()], most=20)
        return f"over {' and '.join(each.option for each in self.over)}" + (
            f", with {fixed}" if fixed else ""
        )

    def shown_interval(self, forecast: Forecast) -> Interval:
        """The quantity that is shown of a forecast."""
        step, samples = forecast.breakdown.step, forecast.breakdown.samples_per_step or 1.0
        if not self.rated:
            return step
        low, high = (
            None if not end or end <= 0 else samples / end for end in (step.high, step.low)
        )
        known = low is not None and high is not None
        return Interval(
            value=samples / step.value, low=low if known else None, high=high if known else None
        )

    def text(self, forecast: Forecast) -> str:
        """Write it with its interval, in the unit of ``scale``."""
        found = self.shown_interval(forecast)
        return f"{self.scale.number(found.value)} {plus_minus(found, self.scale)}"


def show_sweep(
    workload: str,
    typed: dict[str, str],
    over: Sequence[SweptOption],
    points: Sequence[Point],
    measured_rate: float | None,
    measured_step: float,
) -> ShownSweep:
    """The sweep in its units."""
    known = [point.forecast.breakdown for point in points if point.forecast is not None]
    rated = (
        bool(known) and measured_rate is not None and all(each.samples_per_second for each in known)
    )
    steps = scale_for(max((each.step_seconds for each in known), default=1.0), SECONDS, 4)
    rates = scale_for(
        max((each.samples_per_second or 0.0 for each in known), default=1.0), _RATE, 3
    )
    measured = measured_rate if rated and measured_rate else measured_step
    return ShownSweep(
        workload, typed, over, points, measured, rated, rates if rated else steps, steps
    )


def page(found: ShownSweep) -> Page:
    """The curves; a terminal draws one next to its table, and of two options shows a table of both."""
    chart, several = _chart(found), len(found.over) > 1
    both = f"{found.scale.unit}: {found.over[0].option} below each other, {found.over[-1].option} side by side"
    return Page(
        title=found.workload,
        source=f"what if, {found.question}",
        subtitle=(found.question,),
        warnings=tuple(dict.fromkeys([*_extrapolations(found.points), *_unknown(found.points)])),
        chapters=(
            Chapter("sweep", "The forecasts", charts=(chart,), brief=not several),
            *(
                (Chapter("both", both, grids=(_two_option_grid(found),), brief=True),)
                if several
                else ()
            ),
        ),
    )


def _extrapolations(points: Sequence[Point]) -> list[str]:
    """Each sentence once, with the first point that needs it."""
    found: dict[str, str] = {}
    for point in points:
        for sentence in point.forecast.extrapolations if point.forecast is not None else ():
            kind = "".join(letter for letter in sentence if not letter.isdigit())
            found.setdefault(kind, f"from {' and '.join(point.texts)} on: {sentence}")
    return list(found.values())


def _unknown(points: Sequence[Point]) -> list[str]:
    found: dict[str, list[str]] = {}
    for point in points:
        if point.forecast is None and point.why is not None:
            found.setdefault(point.why, []).append(" and ".join(point.texts))
    return [f"unknown at {join_names(texts)}: {why}" for why, texts in found.items()]


def _two_option_grid(found: ShownSweep) -> Grid:
    """Rows are the first option, columns the second."""
    first, second = found.over
    cells = {
        point.texts: "unknown"
        if point.forecast is None
        else found.scale.number(found.shown_interval(point.forecast).value)
        for point in found.points
    }
    rows = tuple((row, *(cells[row, column] for column in second.texts)) for row in first.texts)
    return Grid("", second.texts, rows, frozenset({0}), first=first.option)


def _chart(found: ShownSweep) -> Chart:
    """What was measured is a line across."""
    x, places = _option_axis(found.over[0])
    known = [
        found.shown_interval(point.forecast) for point in found.points if point.forecast is not None
    ]
    unit = found.scale.unit
    y = make_ruler(
        [found.measured, *(end for each in known for end in (each.value, each.low, each.high))],
        unit if unit == "samples/s" else f"{unit} a step",
        found.scale.size,
    )
    curves, keys = [level(found.measured)], []
    by_name: dict[str, list[Point]] = {}
    for point in found.points:
        name = f"{found.over[1].option} {point.texts[1]}" if len(found.over) > 1 else ""
        by_name.setdefault(name, []).append(point)
    for number, (name, points) in enumerate(by_name.items()):
        series = CURVES[number % len(CURVES)]
        at = tuple(
            _place(found, name, point, point.forecast, places)
            for point in points
            if point.forecast is not None
        )
        curves.append(PlotCurve(series, at, line=True, ribbon=True))
        keys += [Legend(series, name)] if name else []
    most = max(
        (end for each in known for end in (each.value, each.high) if end is not None), default=0.0
    )
    return plane_chart(
        "sweep",
        f"{found.workload} {found.question}",
        curves,
        x,
        y,
        _table(found, most),
        how="The band is the 95 % interval of the forecast, the line across what was measured.",
        keys=(*keys, Legend("plain", "measured")),
    )


def _place(
    found: ShownSweep, name: str, point: Point, forecast: Forecast, places: dict[str, float]
) -> PlotPoint:
    drawn, most = found.shown_interval(forecast), next_bottleneck(forecast)
    tip = f"{name} {point.texts[0]}: {found.text(forecast)}, limited by {most.name} {most.share:.0%}".strip()
    return PlotPoint(
        places[point.texts[0]],
        drawn.value,
        tip,
        drawn.low,
        drawn.high,
        hollow=bool(forecast.extrapolations),
    )


def _option_axis(option: SweptOption) -> tuple[Ruler, dict[str, float]]:
    """The axis of an option, and where each of its values stands on it: side by side, as they were spaced."""
    shown = Extent(-0.5, len(option.texts) - 0.5)
    at = [shown.locate(number) for number in range(len(option.texts))]
    ticks = tuple(map(Tick, at, option.texts))
    return Ruler(Extent(0.0, 1.0), Axis(option.option, ticks)), dict(
        zip(option.texts, at, strict=True)
    )


def _table(found: ShownSweep, most: float) -> Grid:
    """A row for each point, with its value and interval on an axis from 0 to ``most``."""
    first, *others = (each.option for each in found.over)
    rows: list[tuple[str, ...]] = []
    for point in found.points:
        if point.forecast is None:
            rows.append((*point.texts, "unknown", "", ""))
            continue
        limit = next_bottleneck(point.forecast)
        step = found.steps.number(point.forecast.breakdown.step_seconds)
        rows.append(
            (*point.texts, found.text(point.forecast), step, f"{limit.name} {limit.share:.0%}")
        )
    head = (*others, found.scale.unit, f"step, {found.steps.unit}", "limited by")
    return Grid(
        title="",
        head=head,
        rows=tuple(rows),
        texts=frozenset({len(head)}),
        first=first,
    )
