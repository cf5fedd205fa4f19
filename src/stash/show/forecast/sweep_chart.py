"""The chart of a sweep: one curve of forecasts, or one for each value of a second option, with their 95 % intervals.

Values of the first option that are numbers stand by their size, or by their ratio where they span much; names stand
side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stash.show.charts.axes import Extent, extent, plain_axis
from stash.show.charts.chart import Axis, Chart, Dot, Drawn, Legend, Ribbon, Tick, Trail
from stash.show.forecast.curves import CurvePoint, SweepView
from stash.show.grid import Grid

_BY_RATIO = 8
"""Ranges that span more are drawn by ratio."""
_COLOURS = ("compute", "interconnect", "contention", "prep", "network", "transfer", "fetch")
_MARGIN = 0.03
"""Of the plane, left free on both sides of the curves."""


def chart(view: SweepView) -> Chart:
    """Samples per second, or the step, over the first option; what was measured is a line across."""
    x, places = _across(view)
    values = [end for point in view.points for end in (point.value, point.low, point.high)]
    y = extent([*values, view.measured])
    marks: list[Drawn] = []
    if view.measured is not None:
        marks.append(Trail(((0.0, y.at(view.measured)), (1.0, y.at(view.measured))), "plain"))
    curves = _curves(view)
    for (name, points), colour in zip(curves.items(), _repeated(len(curves)), strict=True):
        marks.extend(_curve(name, points, colour, places, y))
    keys = [Legend(colour, name) for name, colour in zip(curves, _repeated(len(curves)), strict=True) if name]
    return Chart(
        name="sweep",
        title=f"{view.title} {view.question}",
        caption="",
        how="The band is the 95 % interval of the forecast, the line across what was measured.",
        x=x,
        y=plain_axis(y, view.unit if view.unit == "samples/s" else f"{view.unit} a step"),
        marks=tuple(marks),
        keys=(*keys, Legend("plain", "measured")) if view.measured is not None else tuple(keys),
        table=_table(view),
    )


def _across(view: SweepView) -> tuple[Axis, dict[str, float]]:
    """The axis of the first option, and where each of its values stands on it."""
    texts = list(dict.fromkeys(point.at[0] for point in view.points))
    read = [re.fullmatch(r"([0-9.]+)\s*([a-zA-Z%/]*)", text) for text in texts]
    numbers = [float(each[1]) for each in read if each is not None]
    units = {each[2] for each in read if each is not None}
    name = view.options[0]
    if len(numbers) < len(texts) or len(units) > 1 or len(set(numbers)) < 2:
        shown = Extent(-0.5, len(texts) - 0.5)
        numbers, label = [float(number) for number in range(len(texts))], name
    else:
        low, high = min(numbers), max(numbers)
        shown = Extent(low, high, logarithmic=low > 0 and high >= _BY_RATIO * low)
        label = f"{name}, {unit}" if (unit := next(iter(units))) else name
    at = [_MARGIN + (1 - 2 * _MARGIN) * shown.at(number) for number in numbers]
    return Axis(label, tuple(map(Tick, at, texts))), dict(zip(texts, at, strict=True))


def _curves(view: SweepView) -> dict[str, list[CurvePoint]]:
    """Known points by the value of the second option; of a sweep over one option under no name."""
    curves: dict[str, list[CurvePoint]] = {}
    for point in view.points:
        name = f"{view.options[1]} {point.at[1]}" if len(view.options) > 1 else ""
        curves.setdefault(name, []).append(point)
    return curves


def _curve(name: str, points: Sequence[CurvePoint], colour: str, places: dict[str, float], y: Extent) -> list[Drawn]:
    known = [(places[point.at[0]], point, point.value) for point in points if point.value is not None]
    held = [
        (x, y.at(point.low), y.at(point.high))
        for x, point, _ in known
        if point.low is not None and point.high is not None
    ]
    said = [f"{name} {view_at}".strip() for view_at in (point.at[0] for _, point, _ in known)]
    return [
        Ribbon(tuple(held), colour),
        Trail(tuple((x, y.at(value)) for x, _, value in known), colour),
        *(
            Dot(x, y.at(value), colour, says=f"{at}: {point.text}, limited by {point.largest}", hollow=point.beyond)
            for (x, point, value), at in zip(known, said, strict=True)
        ),
    ]


def _repeated(count: int) -> list[str]:
    return [_COLOURS[number % len(_COLOURS)] for number in range(count)]


def _table(view: SweepView) -> Grid:
    first, *others = view.options
    rows = tuple((*point.at, point.text, point.step, point.largest) for point in view.points)
    head = (*others, view.unit, f"step, {view.step_unit}", "limited by")
    return Grid("The same as a table", head, rows, frozenset({0, len(head)}), first=first)
