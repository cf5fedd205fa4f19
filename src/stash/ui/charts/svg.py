"""A chart as SVG, as wide as asked: for a page, which colours it by its style sheet, or for paper, with its own.

Turns fractions into pixels, leaves room for labels, and drops labels that would touch. On a narrow screen the name of
a row stands above it. Computes nothing but places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup

from stash.core.printable import printable_line
from stash.ui.charts.builders import Chart, LaneRow, PlotCurve
from stash.ui.charts.chart import (
    INK,
    LIGHT,
    LINES,
    MUTED,
    Axis,
    Bar,
    Tag,
    Tick,
    band,
    centre,
    series,
)
from stash.ui.charts.tiles import (
    SIZE,
    length_of,
    letters_in,
    shortened_name,
    titled_element,
    words_at,
)
from stash.ui.elements import element, short_number, style_sheet

_NAMESPACE = "http://www.w3.org/2000/svg"
FONT = "Roboto, Arial, Helvetica, sans-serif"
_LINE = 17
_NARROW = 480
"""Below this width rows have their names above them."""
_PLANE_HEIGHT = 240
_RADIUS = 3.5
_END = 3.5
_MAX_TIPS = 1000
"""Dots that have a tooltip: among more, no single one can be pointed at."""
_BESIDE = 6
"""Pixels from a place to the words about it."""
RULES = (
    f"svg.chart text{{fill:currentColor;font-size:{SIZE}px}}",
    "svg.chart path{fill:none;stroke:currentColor}",
    "svg.chart rect{fill:currentColor}",
    "svg.chart circle{fill:currentColor}",
    "svg.strip rect{fill:currentColor}",
    "svg.chart .hollow{fill:none;stroke:currentColor;stroke-width:1.4}",
    "svg.chart .faint{fill-opacity:.35}",
    "svg.chart .bold{stroke-width:1.4}",
    "svg.chart .ribbon{fill:currentColor;fill-opacity:.18}",
    "svg.chart .trail{stroke-width:1.4;stroke-opacity:.6}",
    "svg.chart text.halo{stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}",
)
"""Of style, that hold on any page."""


def draw_svg(
    chart: Chart, width: int, paper: bool = False, font: str = "", zoom: float = 1.0
) -> Markup:
    """The drawing of ``chart``, ``width`` pixels wide and shown at ``zoom`` times that.

    On ``paper`` it has its own colours, and ``font`` is the rule that brings its font. Else the page around it gives
    it ``RULES``, and a colour to every class ``s-SERIES``, ``quiet`` and ``line``.
    """
    frame = _Frame(chart, width)
    high = frame.height
    colours = "".join(f".s-{name}{{color:{colour}}}" for name, colour in LIGHT.items())
    sheet = (
        f"{''.join(RULES)}svg.chart{{color:{INK}}}svg.chart text{{font-family:{FONT}}}svg.chart .ground{{fill:#fff}}"
        f".quiet{{color:{MUTED}}}.line{{color:{LINES}}}{colours}"
    )
    ground = (
        style_sheet(font + sheet),
        element("rect", class_="ground", width=width, height=high),
    )
    return element(
        "svg",
        *(ground if paper else ()),
        *frame.keys(),
        *frame.grid(),
        *frame.lanes(),
        *frame.marks(),
        *frame.labels(),
        xmlns=_NAMESPACE,
        class_="chart",
        role="img",
        aria_label=printable_line(f"{chart.title}. {chart.caption} {chart.how}".strip()),
        viewBox=f"0 0 {width} {short_number(high)}",
        width=width * zoom,
        height=high * zoom,
    )


def draw_strip(parts: Sequence[tuple[str, float]]) -> Markup:
    """One bar of a page's width made of parts: the series of each, and its length as a fraction of the others'."""
    whole = sum(length for _, length in parts) or 1.0
    reached = 0.0
    drawn = []
    for name, length in parts:
        wide = 1000 * length / whole
        drawn.append(element("rect", class_=series(name), x=reached, width=wide, height=30))
        reached += wide
    label = ", ".join(f"{name} {length:.0%}" for name, length in parts)
    return element(
        "svg",
        *drawn,
        xmlns=_NAMESPACE,
        class_="strip",
        role="img",
        aria_label=label,
        viewBox="0 0 1000 30",
        preserveAspectRatio="none",
    )


class _Frame:
    """Where everything of one chart stands: the plane of its marks, and the room around it."""

    def __init__(self, chart: Chart, width: int) -> None:
        self.chart = chart
        self.x_axis = chart.x.axis
        self.y_ticks = chart.y.axis.ticks if chart.y is not None else ()
        self.width = width
        self.narrow = width < _NARROW
        """For hands, which point at nothing: what pointing tells is left out."""
        self.stacked = bool(chart.lanes) and self.narrow
        self.names = [shortened_name(lane.name) for lane in chart.lanes]
        # The legend in lines: how far right each key begins, its series and its text.
        lines: list[list[tuple[float, str, str]]] = []
        at = math.inf
        for key in chart.keys:
            text = shortened_name(key.text, letters_in(width - 30))
            room = length_of(len(text)) + 30
            if at + room > width:
                lines.append([])
                at = 4.0
            lines[-1].append((at, key.series, text))
            at += room
        self.key_lines = lines
        self.left, right = self._sides()
        self.plane = max(60.0, width - self.left - right)
        self.top = _LINE * (len(self.key_lines) + (chart.y is not None)) + 8
        self.above = _LINE if self.stacked and any(self.names) else 0
        self.row = (30 if len(chart.lanes) <= 12 else 22) + (14 if self.stacked else 0)
        """The height of a row, its name above it included."""
        self.tall = self.row * len(chart.lanes) if chart.lanes else _PLANE_HEIGHT
        self.bottom = self.top + self.tall
        self.height = self.bottom + 2 * _LINE + 8
        self.tags: list[tuple[float, float, float, float]] = []
        """Where words stand already: left, right, top, bottom."""
        self.dots: list[tuple[float, float]] = []
        dots = sum(len(lane.values) for lane in chart.lanes)
        dots += sum(len(curve.points) for curve in chart.curves if curve.dots)
        self.has_tips = not self.narrow and dots <= _MAX_TIPS

    def _sides(self) -> tuple[float, float]:
        """Room left and right of the plane."""
        chart = self.chart
        last = length_of(len(self.x_axis.ticks[-1].text)) / 2 + 4 if self.x_axis.ticks else 0
        named = min(0.4 * self.width, length_of(max(map(len, self.names), default=0)) + 12)
        if self.stacked:
            first = length_of(len(self.x_axis.ticks[0].text)) / 2 + 2 if self.x_axis.ticks else 0
            return max(10.0, first), max(14.0, last)
        if chart.lanes:
            texts = max((len(lane.text) for lane in chart.lanes if not lane.unknown), default=0)
            return named, max(length_of(texts) + 18, last)
        longest = max((len(tick.text) for tick in self.y_ticks), default=0)
        return length_of(longest) + 14, max(18.0, last)

    def across(self, x: float) -> str:
        return short_number(self.left + x * self.plane)

    def down(self, y: float) -> str:
        if not self.stacked:
            return short_number(self.top + (1 - y) * self.tall)
        rows = (1 - y) * len(self.chart.lanes)
        row = min(int(rows), len(self.chart.lanes) - 1)
        return short_number(
            self.top + row * self.row + self.above + (rows - row) * (self.row - self.above)
        )

    def keys(self) -> Iterator[Markup]:
        for number, line in enumerate(self.key_lines):
            middle = number * _LINE + 9
            for at, name, text in line:
                yield element("circle", class_=series(name), cx=at + 5, cy=middle, r=4.5)
                yield words_at(at + 15, middle + 4, text)
        if self.chart.y is not None:
            yield words_at(4, self.top - 12, self.chart.y.axis.label, "quiet")

    def grid(self) -> Iterator[Markup]:
        """Fine lines at the labelled places, and the base line."""
        top = short_number(self.top)
        bottom = short_number(self.bottom)
        for tick in self._fitting(self.x_axis):
            yield element("path", class_="line", d=f"M{self.across(tick.at)} {top}V{bottom}")
        for tick in self.y_ticks:
            yield element(
                "path", class_="line", d=f"M{self.across(0)} {self.down(tick.at)}H{self.across(1)}"
            )
        yield element("path", class_="quiet", d=f"M{self.across(0)} {bottom}H{self.across(1)}")

    def lanes(self) -> Iterator[Markup]:
        for number, (lane, name) in enumerate(zip(self.chart.lanes, self.names, strict=True)):
            top = self.top + number * self.row
            base = top + 13 if self.stacked else top + self.row / 2 + 4
            tone = "quiet" if lane.unknown else ""
            if not name:
                continue
            if self.stacked:
                yield words_at(4, base, name, tone)
            else:
                yield words_at(self.left - 8, base, name, tone, "end")
            if lane.unknown:
                why = f"unknown: {lane.unknown}"
                below = base + (_LINE if self.stacked else 0)
                left = 14.0 if self.stacked else self.left + 4
                text = shortened_name(why, letters_in(self.width - left - 8))
                yield words_at(left, below, text, "quiet", tip=why)
            elif lane.text:
                room = self.width - 16 - (length_of(len(name)) if self.stacked else 0)
                yield words_at(
                    self.width - 4, base, shortened_name(lane.text, letters_in(room)), "", "end"
                )

    def labels(self) -> Iterator[Markup]:
        """What the axes are, and the values at their lines."""
        for tick in self._fitting(self.x_axis):
            yield words_at(
                self.left + tick.at * self.plane, self.bottom + 15, tick.text, "quiet", "middle"
            )
        yield words_at(
            self.left + self.plane / 2,
            self.bottom + 15 + _LINE,
            self.x_axis.label,
            "quiet",
            "middle",
        )
        for tick in self.y_ticks:
            yield words_at(self.left - 8, float(self.down(tick.at)) + 4, tick.text, "quiet", "end")

    def _fitting(self, axis: Axis) -> tuple[Tick, ...]:
        """Every place, or every second, third … one: as many as there is room for."""
        count = len(axis.ticks)
        longest = length_of(max((len(tick.text) for tick in axis.ticks), default=0)) + 10
        every = next(
            (n for n in range(1, count) if longest <= self.plane * n / max(1, count - 1)),
            max(1, count - 1),
        )
        return axis.ticks[::every]

    def marks(self) -> Iterator[Markup]:
        """Bars, rows, lines across, curves, and words about places, each over those before."""
        chart = self.chart
        yield from map(self._bar, chart.bars)
        for number, row in enumerate(chart.lanes):
            yield from self._row(row, centre(number, len(chart.lanes)), number)
        for value in chart.rules:
            x = self.across(chart.x.locate(value))
            line = f"M{x} {short_number(self.top)}V{short_number(self.bottom)}"
            yield element("path", class_="quiet bold", d=line)
        for curve in chart.curves:
            yield from self._curve(curve)
        yield from map(self._tag, chart.tags)

    def _row(self, row: LaneRow, y: float, number: int) -> Iterator[Markup]:
        x = self.chart.x
        upright = band(number, len(self.chart.lanes))
        for piece in row.pieces:
            place = x.span(piece.start, piece.end)
            yield self._bar(Bar(place, upright, piece.series, piece.tip, piece.faint))
        if row.low is not None and row.high is not None:
            yield self._whisker(x.span(row.low, row.high), (y, y))
        for value in row.values:
            if value.low is not None and value.high is not None:
                ends = x.span(value.low, value.high)
                yield self._whisker(ends, (y, y), value.line or value.series)
            yield self._dot(x.locate(value.value), y, value.series, value.tip)

    def _curve(self, curve: PlotCurve) -> Iterator[Markup]:
        x, y = self.chart.x, self.chart.y
        assert y is not None
        if curve.ribbon:
            known = [p for p in curve.points if p.low is not None and p.high is not None]
            lower = [(p.x, p.low or 0.0) for p in known]
            upper = [(p.x, p.high or 0.0) for p in reversed(known)]
            around = [(self.across(x.locate(a)), self.down(y.locate(b))) for a, b in lower + upper]
            points = " ".join(f"{across},{down}" for across, down in around)
            yield element("polygon", class_=series(curve.series, "ribbon"), points=points)
        places = [(x.locate(point.x), y.locate(point.y)) for point in curve.points]
        if curve.line and len(places) > 1:
            line = "L".join(f"{self.across(a)} {self.down(b)}" for a, b in places)
            yield element("path", class_=series(curve.series, "trail"), d=f"M{line}")
        for point, (across, up) in zip(curve.points, places, strict=True):
            if not curve.dots:
                break
            if point.left is not None and point.right is not None:
                ends = (x.locate(point.left), x.locate(point.right))
                yield self._whisker(ends, (up, up), curve.series)
            if point.low is not None and point.high is not None and not curve.ribbon:
                ends = (y.locate(point.low), y.locate(point.high))
                yield self._whisker((across, across), ends, curve.series)
            yield self._dot(across, up, curve.series, point.tip, point.hollow)

    def _dot(self, x: float, y: float, name: str, tip: str, hollow: bool = False) -> Markup:
        across, down = self.across(x), self.down(y)
        self.dots.append((float(across), float(down)))
        tone = series(name, "hollow" if hollow else "")
        shown = tip if self.has_tips else ""
        return titled_element("circle", shown, class_=tone, cx=across, cy=down, r=_RADIUS)

    def _bar(self, bar: Bar) -> Markup:
        left, right = map(float, map(self.across, bar.x))
        bottom, top = map(float, map(self.down, bar.y))
        tip = "" if self.narrow else bar.tip
        tone = series(bar.series, "faint" if bar.faint else "")
        wide = max(right - left, 1)
        high = max(bottom - top, 1)
        return titled_element("rect", tip, class_=tone, x=left, y=top, width=wide, height=high)

    def _whisker(
        self, across: tuple[float, float], up: tuple[float, float], name: str = ""
    ) -> Markup:
        (x, right), (y, top) = map(self.across, across), map(self.down, up)
        tone = series(name, "bold") if name else "bold"
        line = f"M{x} {y}V{top}"
        if up[0] == up[1]:
            end = f"{short_number(float(y) - _END)}v{2 * _END}"
            line = f"M{x} {y}H{right}M{x} {end}M{right} {end}"
        return element("path", class_=tone, d=line)

    def _tag(self, tag: Tag) -> Markup:
        """Above its place, to the right or else to the left; nothing where neither has room."""
        x = float(self.across(tag.x))
        y = float(self.down(tag.y)) - _BESIDE
        wide = length_of(len(tag.text))
        for begin in (x + _BESIDE, x - _BESIDE - wide):
            box = (begin, begin + wide, y - SIZE, y)
            if self._is_free(box, tag.firm):
                self.tags.append(box)
                return words_at(begin, y, tag.text, "halo" if tag.firm else "")
        return Markup()

    def _is_free(self, box: tuple[float, float, float, float], firm: bool) -> bool:
        """Whether words there touch neither others, nor a line across, nor dots unless they are ``firm``."""
        left, right, top, bottom = box
        if left < self.left or right > self.width or top < self.top - SIZE:
            return False
        if any(left < b and right > a and top < d and bottom > c for a, b, c, d in self.tags):
            return False
        chart = self.chart
        lines = (float(self.across(chart.x.locate(value))) for value in chart.rules)
        if any(left < line < right for line in lines):
            return False
        return firm or not any(left < x < right and top <= y <= bottom for x, y in self.dots)
