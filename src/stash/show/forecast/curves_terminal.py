"""A sweep as text for a terminal: a line for each point with its band drawn beside it; of two options a table."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from stash.show.forecast.curves import CurvePoint, SweepView
from stash.show.layout import INDENT, Renderer, paragraph, terminal_renderer

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
