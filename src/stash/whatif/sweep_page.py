"""A sweep as a page: one curve of forecasts with their 95 % intervals, or one for each value of a second option.

One quantity is drawn: samples per second, or the step where samples are unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.analysis.breakdown import Breakdown
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


@dataclass(frozen=True)
class _Scales:
    """The units in which a sweep is shown."""

    rated: bool
    """Whether rates are shown, since every point has one; else steps."""
    shown: Scale
    steps: Scale

    def interval(self, forecast: Forecast) -> Interval:
        """The quantity that is shown of a forecast."""
        step, samples = forecast.breakdown.step, forecast.breakdown.samples_per_step or 1.0
        if not self.rated:
            return step
        if not step.low or not step.high or step.low <= 0:
            return Interval(value=samples / step.value)
        return Interval(
            value=samples / step.value, low=samples / step.high, high=samples / step.low
        )

    def text(self, forecast: Forecast) -> str:
        found = self.interval(forecast)
        return f"{self.shown.number(found.value)} {plus_minus(found, self.shown)}"


def page(
    workload: str,
    typed: dict[str, str],
    over: Sequence[SweptOption],
    points: Sequence[Point],
    measured: Breakdown,
) -> Page:
    """The curves; a terminal draws one next to its table, and of two options shows a table of both."""
    fixed = join_names([f"{name} {text}" for name, text in typed.items()], most=20)
    question = f"over {' and '.join(each.option for each in over)}" + (fixed and f", with {fixed}")
    known = [point.forecast.breakdown for point in points if point.forecast is not None]
    rates = [each.samples_per_second for each in known]
    rated = bool(known) and measured.samples_per_second is not None and all(rates)
    steps = scale_for(max((each.step_seconds for each in known), default=1.0), SECONDS, 4)
    shown = scale_for(max(rate or 0.0 for rate in rates), _RATE, 3) if rated else steps
    scales = _Scales(rated, shown, steps)
    now = (rated and measured.samples_per_second) or measured.step_seconds
    chart = _chart(f"{workload} {question}", over, points, scales, now)
    chapters = [Chapter("sweep", "The forecasts", charts=(chart,), brief=len(over) == 1)]
    if len(over) > 1:
        both = f"{shown.unit}: {over[0].option} below each other, {over[1].option} side by side"
        grid = _two_option_grid(over[0], over[1], points, scales)
        chapters.append(Chapter("both", both, grids=(grid,), brief=True))
    return Page(
        title=workload,
        source=f"what if, {question}",
        subtitle=(question,),
        warnings=tuple(_warnings(points)),
        chapters=tuple(chapters),
    )


def _warnings(points: Sequence[Point]) -> list[str]:
    """Each sentence on how far forecasts reach once, with the first point that needs it; and what is unknown, and why."""
    reaching: dict[str, str] = {}
    unknown: dict[str, list[str]] = {}
    for point in points:
        place = " and ".join(point.texts)
        if point.forecast is None and point.why is not None:
            unknown.setdefault(point.why, []).append(place)
        for sentence in () if point.forecast is None else point.forecast.extrapolations:
            kind = "".join(letter for letter in sentence if not letter.isdigit())
            reaching.setdefault(kind, f"from {place} on: {sentence}")
    lost = [f"unknown at {join_names(texts)}: {why}" for why, texts in unknown.items()]
    return list(dict.fromkeys([*reaching.values(), *lost]))


def _two_option_grid(
    first: SweptOption, second: SweptOption, points: Sequence[Point], scales: _Scales
) -> Grid:
    """Rows are the first option, columns the second."""
    cells = {
        point.texts: "unknown"
        if point.forecast is None
        else scales.shown.number(scales.interval(point.forecast).value)
        for point in points
    }
    rows = tuple((row, *(cells[row, column] for column in second.texts)) for row in first.texts)
    return Grid("", second.texts, rows, frozenset({0}), first=first.option)


def _chart(
    title: str, over: Sequence[SweptOption], points: Sequence[Point], scales: _Scales, now: float
) -> Chart:
    """What was measured, ``now``, is a line across; values stand side by side, as they were spaced."""
    texts = over[0].texts
    extent = Extent(-0.5, len(texts) - 0.5)
    places = {text: extent.locate(number) for number, text in enumerate(texts)}
    ticks = tuple(Tick(at, text) for text, at in places.items())
    by_name: dict[str, list[PlotPoint]] = {}
    for point in points:
        name = f"{over[1].option} {point.texts[1]}" if len(over) > 1 else ""
        shown = by_name.setdefault(name, [])
        if point.forecast is not None:
            drawn, most = scales.interval(point.forecast), next_bottleneck(point.forecast)
            tip = f"{name} {point.texts[0]}: {scales.text(point.forecast)}, limited by {most.name} {most.share:.0%}"
            ends = drawn.value, tip.strip(), drawn.low, drawn.high
            reaches = bool(point.forecast.extrapolations)
            shown.append(PlotPoint(places[point.texts[0]], *ends, hollow=reaches))
    curves, keys = [level(now)], []
    for number, (name, shown) in enumerate(by_name.items()):
        series = CURVES[number % len(CURVES)]
        curves.append(PlotCurve(series, tuple(shown), line=True, ribbon=True))
        keys += [Legend(series, name)] if name else []
    drawn_ends = [
        end for shown in by_name.values() for at in shown for end in (at.y, at.low, at.high)
    ]
    unit = scales.shown.unit
    label = unit if scales.rated else f"{unit} a step"
    return plane_chart(
        "sweep",
        title,
        curves,
        Ruler(Extent(0.0, 1.0), Axis(over[0].option, ticks)),
        make_ruler([now, *drawn_ends], label, scales.shown.size),
        _table(over, points, scales),
        how="The band is the 95 % interval of the forecast, the line across what was measured.",
        keys=(*keys, Legend("plain", "measured")),
    )


def _table(over: Sequence[SweptOption], points: Sequence[Point], scales: _Scales) -> Grid:
    """A row for each point, with its value and interval."""
    first, *others = (each.option for each in over)
    rows: list[tuple[str, ...]] = []
    for point in points:
        if point.forecast is None:
            rows.append((*point.texts, "unknown", "", ""))
            continue
        limit = next_bottleneck(point.forecast)
        step = scales.steps.number(point.forecast.breakdown.step_seconds)
        limited = f"{limit.name} {limit.share:.0%}"
        rows.append((*point.texts, scales.text(point.forecast), step, limited))
    head = (*others, scales.shown.unit, f"step, {scales.steps.unit}", "limited by")
    return Grid("", head, tuple(rows), frozenset({len(head)}), first=first)
