"""The step as a ladder of stalls with their intervals; and what lies between two sides of profiles."""

from __future__ import annotations

from collections.abc import Sequence

from stash.analysis.breakdown import Breakdown, Missing, Stall, figures
from stash.analysis.comparison import FASTER, RATE, SLOWER, RunComparison
from stash.core.formatting import plus_minus
from stash.core.ladder import STALLS
from stash.core.units import Scale
from stash.report.comparison_page import ComparisonView, Line
from stash.report.profile_page import UNKNOWN, table_rows
from stash.ui.charts.chart import (
    Bar,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Lane,
    Legend,
    Rule,
    band,
    centre,
    extent,
    plain_axis,
    time_scale,
    whisker,
)
from stash.ui.page import Row

# Ladder ----------------------------------------------------------------------------------------------------
# The step as a ladder: every stall as a bar that begins where the one before ends, with its interval; and several
# steps under each other.
#
# Stalls are drawn as they were measured: one below zero goes back, one within the noise is faint.


def ladder(breakdown: Breakdown) -> Chart:
    """A row for each stall that the job can have, known or not, and one for the step."""
    scale = figures(breakdown.stalls).scale
    rows, total = table_rows(breakdown.stalls, breakdown.skipped, breakdown.step)
    count = len(rows) + 1
    shown = _extent(breakdown)
    known = {stall.name: stall for stall in breakdown.stalls}
    marks: list[Drawn] = []
    reached = 0.0
    for number, row in enumerate(rows):
        stall = known.get(row.name)
        if stall is None:
            continue
        says = f"{row.name}: {row.time} {row.interval}, {row.share} of the step"
        place = shown.span(reached, reached + stall.seconds)
        marks.append(Bar(place, band(number, count), row.name, says, faint=row.within_noise))
        marks += whisker(shown, stall.low, stall.high, centre(number, count), start=reached)
        reached += stall.seconds
    says = f"step: {total.time} {total.interval}"
    marks.append(Bar(shown.span(0.0, breakdown.step_seconds), band(count - 1, count), "plain", says))
    marks += whisker(shown, breakdown.step.low, breakdown.step.high, centre(count - 1, count))
    lanes = tuple(_lane(row) for row in rows)
    return Chart(
        name="ladder",
        title="The step, stall by stall",
        caption="",
        how="Each bar begins where the one before ends, so together they are the step. Thin lines are 95% "
        "intervals; a faint bar is within the noise.",
        x=plain_axis(shown, f"{scale.unit} of a step", scale.size),
        marks=tuple(marks),
        lanes=(*lanes, Lane(total.name, _end(total.time, total.interval, ""))),
        table=_table(breakdown, scale),
    )


def _lane(row: Row) -> Lane:
    if row.why is not None:
        return Lane(row.name, f"{UNKNOWN}: {row.why}", quiet=True)
    return Lane(row.name, _end(row.time, row.interval, row.share))


def _end(time: str, interval: str, share: str) -> str:
    return " · ".join(part for part in (f"{time} {interval}".strip(), share) if part)


def _extent(breakdown: Breakdown) -> Extent:
    reached, values = 0.0, [breakdown.step.low, breakdown.step.high, breakdown.step_seconds]
    for stall in breakdown.stalls:
        ends = (stall.low, stall.high, stall.seconds)
        values += [reached + end for end in ends if end is not None]
        reached += stall.seconds
    return extent(values)


def _table(breakdown: Breakdown, scale: Scale) -> Grid:
    written = figures(breakdown.stalls)

    def number(seconds: float | None) -> str:
        return UNKNOWN if seconds is None else scale.number(seconds)

    def measured(stall: Stall) -> tuple[str, ...]:
        time = f"{written.times[stall.name]:,.{scale.decimals}f}"
        noise = "within noise" if stall.within_noise else ""
        return stall.name, time, number(stall.low), number(stall.high), written.share(stall.name), noise

    def missing(stall: Missing) -> tuple[str, ...]:
        return stall.name, UNKNOWN, "", "", "", stall.why

    found = {stall.name: measured(stall) for stall in breakdown.stalls}
    found |= {stall.name: missing(stall) for stall in breakdown.skipped}
    step = breakdown.step
    total = ("step", scale.number(step.value), number(step.low), number(step.high), "100.0%", "")
    return Grid(
        title="Stalls of a step",
        first="stall",
        head=(f"time, {scale.unit}", "95% from", "to", "share", "remark"),
        rows=(*(found[name] for name in STALLS if name in found), total),
        texts=frozenset({0, 5}),
    )


def steps_side_by_side(runs: Sequence[tuple[str, Breakdown]]) -> Chart:
    """A row for each run, its step made of its stalls; what was measured as negative has no place in it."""
    longest = max(run.step_seconds for _, run in runs)
    scale = time_scale(longest)
    shown = extent([*(_length(run) for _, run in runs), *(run.step.high for _, run in runs)])
    marks: list[Drawn] = []
    for number, (name, run) in enumerate(runs):
        written, reached = figures(run.stalls), 0.0
        for stall in run.stalls:
            if stall.seconds > 0:
                says = f"{name}, {stall.name}: {written.quantity(stall.name)}, {written.share(stall.name)}"
                place = shown.span(reached, reached + stall.seconds)
                marks.append(Bar(place, band(number, len(runs)), stall.name, says))
                reached += stall.seconds
        marks += whisker(shown, run.step.low, run.step.high, centre(number, len(runs)))
    present = [name for name in STALLS if any(run.stall(name) is not None for _, run in runs)]
    lanes = tuple(Lane(name, f"{scale.number(run.step_seconds)} {plus_minus(run.step, scale)} {scale.unit}")
                  for name, run in runs)  # fmt: skip
    return Chart(
        name="runs",
        title="The runs, side by side",
        caption="",
        how="One step of each run, made of its stalls; thin lines are the 95% intervals of the steps.",
        x=plain_axis(shown, f"{scale.unit} of a step", scale.size),
        marks=tuple(marks),
        lanes=lanes,
        keys=tuple(Legend(name, name) for name in present),
        table=_runs_table(runs, present, scale),
    )


def _runs_table(runs: Sequence[tuple[str, Breakdown]], present: Sequence[str], scale: Scale) -> Grid:
    rows = tuple(
        (
            name,
            scale.number(run.step_seconds),
            plus_minus(run.step, scale),
            *(_cell(run, each, scale) for each in present),
        )
        for name, run in runs
    )
    return Grid(
        title="Steps and stalls of the runs",
        first="run",
        head=(f"step, {scale.unit}", "95%", *present),
        rows=rows,
        texts=frozenset({0}),
    )


def _length(run: Breakdown) -> float:
    return sum(stall.seconds for stall in run.stalls if stall.seconds > 0)


def _cell(run: Breakdown, name: str, scale: Scale) -> str:
    stall = run.stall(name)
    return UNKNOWN if stall is None else f"{scale.number(stall.seconds)} {plus_minus(stall.time, scale)}"


# Differing -------------------------------------------------------------------------------------------------
# What lies between two sides of profiles, drawn: the change of every stall with its interval, around zero.

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
