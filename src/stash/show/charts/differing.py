"""What lies between two sides of profiles, drawn: the change of every stall with its interval, around zero."""

from __future__ import annotations

from stash.derive.comparison import FASTER, SLOWER, RunComparison
from stash.derive.comparison.differences import RATE
from stash.show.charts.axes import extent, plain_axis, time_scale, whisker
from stash.show.charts.chart import Chart, Dot, Drawn, Lane, Rule, centre
from stash.show.comparison.view import ComparisonView, Line
from stash.show.grid import Grid

_SERIES = {SLOWER: "slower", FASTER: "faster"}


def _both(line: Line) -> tuple[str, str, str]:
    return line.name, f"{line.before} {line.before_spread}", f"{line.after} {line.after_spread}"


def changes(comparison: RunComparison, view: ComparisonView, name: str) -> Chart:
    """A row for each stall and the step: how much longer it is on the side after."""
    lines = [line for line in comparison.lines if line.name != RATE]
    words = {line.name: line for line in view.lines}
    scale = time_scale(max(comparison.step.before.value, comparison.step.after.value))
    x = extent([end for line in lines for end in (line.change.value, line.change.low, line.change.high)])
    marks: list[Drawn] = [Rule(x.at(0.0))]
    lanes = []
    for number, line in enumerate(lines):
        series, y = _SERIES.get(line.verdict, "plain"), centre(number, len(lines))
        said = f"{words[line.name].change} {view.unit}"
        marks += whisker(x, line.change.low, line.change.high, y, series)
        marks.append(Dot(x.at(line.change.value), y, series, f"{line.name}: {said}, {line.verdict}"))
        lanes.append(Lane(line.name, f"{said} · {line.verdict}"))
    rows = tuple((*_both(line), line.change, line.share, line.word) for line in view.lines)
    return Chart(
        name=name,
        title="What changed",
        caption="",
        how="How much longer each part of a step is after than before, with 95% intervals. Only what lies wholly "
        "on one side of zero is shown to differ.",
        x=plain_axis(x, f"{scale.unit} of a step, after less before", scale.size),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid(
            title=f"Before and after, {view.unit} (samples/s in samples a second)",
            first="what",
            head=("before", "after", "change", "of step", "verdict"),
            rows=rows,
            texts=frozenset({0, 5}),
        ),
    )
