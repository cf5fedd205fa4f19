"""A sweep as text, as a chart, as a picture or a page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from stash.core.errors import UserError
from stash.core.formatting import listed, plus_minus
from stash.core.intervals import Interval
from stash.core.units import SECONDS, Scale, scale_for
from stash.ui.charts.chart import (
    Axis,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Legend,
    Ribbon,
    Tick,
    Trail,
    extent,
    plain_axis,
)
from stash.ui.charts.chart_files import content
from stash.ui.html import render
from stash.ui.layout import INDENT, Renderer, paragraph, terminal_renderer
from stash.ui.page import Chapter, Page
from stash.whatif.answers import next_bottleneck
from stash.whatif.sweep import Point, SweptOption

# Curves ----------------------------------------------------------------------------------------------------
# A sweep made ready to be drawn: its points as numbers and texts, and how they lie on an axis.
#
# One quantity is drawn: samples per second, or the step where samples are unknown. Knows nothing of terminals or
# files.

_RATE = ((1.0, "samples/s"),)


@dataclass(frozen=True)
class CurvePoint:
    """One forecast: where on the axes, and its value and band in ``SweepView.unit``; ``None`` where there is none."""

    at: tuple[str, ...]
    text: str
    step: str
    value: float | None
    low: float | None
    high: float | None
    largest: str = ""
    """What limits the step there."""
    beyond: bool = False
    """It reaches beyond what was calibrated."""


@dataclass(frozen=True)
class SweepView:
    """Everything that is said of a sweep."""

    title: str
    question: str
    options: tuple[str, ...]
    unit: str
    step_unit: str
    points: tuple[CurvePoint, ...]
    measured: float | None
    """The profile's own, in ``unit``."""
    notes: tuple[str, ...]

    @property
    def most(self) -> float:
        """The end of the axis of values."""
        ends = [end for point in self.points for end in (point.value, point.high) if end is not None]
        return max(ends, default=0.0)


def sweep_view(
    workload: str,
    typed: dict[str, str],
    over: Sequence[SweptOption],
    points: Sequence[Point],
    measured_rate: float | None,
    measured_step: float,
) -> SweepView:
    """The view of a sweep; rates if every point has one, else steps."""
    told = [point.told for point in points if point.told is not None]
    rated = bool(told) and measured_rate is not None and all(each.breakdown.samples_per_second for each in told)
    steps = scale_for(max((each.breakdown.step_seconds for each in told), default=1.0), SECONDS, 4)
    rates = scale_for(max((each.breakdown.samples_per_second or 0.0 for each in told), default=1.0), _RATE, 3)
    scale = rates if rated else steps
    names = tuple(axis.option for axis in over)
    fixed = listed([f"{name} {text}" for name, text in typed.items()], most=20)
    return SweepView(
        title=workload,
        question=f"over {' and '.join(names)}" + (f", with {fixed}" if fixed else ""),
        options=names,
        unit=scale.unit,
        step_unit=steps.unit,
        points=tuple(_point(point, scale, steps, rated) for point in points),
        measured=(measured_rate if rated and measured_rate else measured_step) / scale.size,
        notes=tuple(dict.fromkeys([*_beyond(points), *_unknown(points)])),
    )


def _point(point: Point, scale: Scale, steps: Scale, rated: bool) -> CurvePoint:
    if point.told is None:
        return CurvePoint(point.texts, "unknown", "", None, None, None)
    breakdown = point.told.breakdown
    drawn = _rate(breakdown.step, breakdown.samples_per_step or 1.0) if rated else breakdown.step
    largest = next_bottleneck(point.told)
    low, high = (None if end is None else end / scale.size for end in (drawn.low, drawn.high))
    return CurvePoint(
        at=point.texts,
        text=f"{scale.number(drawn.value)} {plus_minus(drawn, scale)}",
        step=steps.number(breakdown.step_seconds),
        value=drawn.value / scale.size,
        low=low,
        high=high,
        largest=f"{largest.name} {largest.share:.0%}",
        beyond=bool(point.told.beyond),
    )


def _rate(step: Interval, samples: float) -> Interval:
    low, high = (None if not end or end <= 0 else samples / end for end in (step.high, step.low))
    known = low is not None and high is not None
    return Interval(value=samples / step.value, low=low if known else None, high=high if known else None)


def _beyond(points: Sequence[Point]) -> list[str]:
    """Each sentence once, with the first point that needs it."""
    found: dict[str, str] = {}
    for point in points:
        for sentence in point.told.beyond if point.told is not None else ():
            kind = "".join(letter for letter in sentence if not letter.isdigit())
            found.setdefault(kind, f"from {' and '.join(point.texts)} on: {sentence}")
    return list(found.values())


def _unknown(points: Sequence[Point]) -> list[str]:
    found: dict[str, list[str]] = {}
    for point in points:
        if point.told is None and point.why is not None:
            found.setdefault(point.why, []).append(" and ".join(point.texts))
    return [f"unknown at {listed(texts)}: {why}" for why, texts in found.items()]


# Curves terminal -------------------------------------------------------------------------------------------
# A sweep as text for a terminal: a line for each point with its band drawn beside it; of two options a table.

_GAP = "  "
_NARROWEST_PLOT = 16


def _report(view: SweepView, width: int, colour: bool) -> list[RenderableType]:
    head = [
        *paragraph(f"{view.title} {view.question}", width, "", "", bold=True),
        Text(),
    ]
    body = _curve(view, width, colour) if len(view.options) == 1 else _grid(view, width)
    notes = [line for note in view.notes for line in paragraph(note, width, "! ", "color(220)", dim=True)]
    return [*head, *body, *([Text(), *notes] if notes else [])]


render_sweep: Renderer[SweepView] = terminal_renderer(_report, narrowest=60, widest=120)
"""The whole sweep."""


def _curve(view: SweepView, width: int, colour: bool) -> list[Text]:
    heads = (view.options[0], view.unit, f"step, {view.step_unit}", "limited by")
    cells = [(point.at[0], point.text, point.step, point.largest) for point in view.points]
    columns = [max(len(row[number]) for row in (heads, *cells)) for number in range(4)]
    left = INDENT + sum(columns) + len(_GAP) * 4
    room = width - left
    lines = [Text(_cells(heads, columns), style="dim")]
    for point, row in zip(view.points, cells, strict=True):
        line = Text(_cells(row, columns), style="" if point.value is not None else "dim")
        if room >= _NARROWEST_PLOT:
            line.append(_GAP).append_text(_band(point, view.most, room, colour))
        lines.append(line)
    if room >= _NARROWEST_PLOT:
        lines.append(Text(" " * left + "0".ljust(room - len(_axis_end(view))) + _axis_end(view), style="dim"))
    return lines


def _axis_end(view: SweepView) -> str:
    return f"{view.most:,.3g}"


def _cells(row: tuple[str, ...], columns: list[int]) -> str:
    first, *others = row
    line = " " * INDENT + first.rjust(columns[0])
    numbers = zip(others[:2], columns[1:3], strict=True)
    return line + "".join(_GAP + text.rjust(size) for text, size in numbers) + _GAP + others[2].ljust(columns[3])


def _band(point: CurvePoint, most: float, room: int, colour: bool) -> Text:
    """The value as a point, its 95 % interval as a line around it, on an axis from 0 to ``most``."""
    if point.value is None or most <= 0:
        return Text("")

    def place(value: float) -> int:
        return max(0, min(room - 1, round(value / most * (room - 1))))

    middle = place(point.value)
    low = place(point.low) if point.low is not None else middle
    high = place(point.high) if point.high is not None else middle
    band, dot = ("━", "●") if colour else ("-", "o")
    line = Text(" " * low).append(band * (middle - low), style="color(74)")
    return line.append(dot, style="bold").append(band * (high - middle), style="color(74)")


def _grid(view: SweepView, width: int) -> list[Text]:
    """Rows are the first option, columns the second; as many columns as fit."""
    rows = list(dict.fromkeys(point.at[0] for point in view.points))
    heads = list(dict.fromkeys(point.at[1] for point in view.points))
    short = {point.at: point.text.split(" ")[0] for point in view.points}
    first = max(len(view.options[0]), *(len(row) for row in rows))
    sizes = [max(len(head), *(len(short[row, head]) for row in rows)) for head in heads]
    fitting, used = 0, INDENT + first
    while fitting < len(heads) and used + len(_GAP) + sizes[fitting] <= width:
        used += len(_GAP) + sizes[fitting]
        fitting += 1
    shown = list(zip(heads, sizes, strict=True))[:fitting]
    title = f"{view.unit}; {view.options[0]} below each other, {view.options[1]} beside each other"
    lines = [*paragraph(title, width, "", "", dim=True)]
    header = " " * INDENT + view.options[0].rjust(first) + "".join(_GAP + head.rjust(size) for head, size in shown)
    lines.append(Text(header, style="dim"))
    for row in rows:
        line = " " * INDENT + row.rjust(first)
        lines.append(Text(line + "".join(_GAP + short[row, head].rjust(size) for head, size in shown)))
    if fitting < len(heads):
        lines += paragraph(f"{len(heads) - fitting} more columns: widen the terminal, or -o FILE.html", width, "", "")
    return lines


# Sweep chart -----------------------------------------------------------------------------------------------
# The chart of a sweep: one curve of forecasts, or one for each value of a second option, with their 95 % intervals.
#
# Values of the first option that are numbers stand by their size, or by their ratio where they span much; names
# stand side by side.

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
        marks.extend(_curve_drawn(name, points, colour, places, y))
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


def _curve_drawn(
    name: str, points: Sequence[CurvePoint], colour: str, places: dict[str, float], y: Extent
) -> list[Drawn]:
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


# Picture ---------------------------------------------------------------------------------------------------
# A sweep as a file: a picture for paper, or a page that stands by itself.

ENDINGS = (".png", ".svg", ".pdf", ".html")
_WIDTH_MM = 140


def picture(view: SweepView, ending: str) -> str | bytes:
    """The content of a file with that ending; raises UserError for another one, or without vl-convert."""
    if ending.lower() not in ENDINGS:
        raise UserError(f"--output *{ending}: pictures end in {', '.join(ENDINGS)}")
    drawn = chart(view)
    if ending.lower() != ".html":
        return content(drawn, ending.lower().removeprefix("."), _WIDTH_MM)
    told = Chapter("sweep", drawn.title, charts=(drawn,), points=view.notes)
    return render(Page(title=view.title, source=f"what if, {view.question}", chapters=(told,)))
