"""A watched run over time: what a step was made of, window after window, and where alerts began and ended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stash.core.units import format_seconds
from stash.monitor.accounting import STALLS
from stash.monitor.records import Alert, RunRecord, Window
from stash.monitor.window_sums import alert_name, inapplicable_stalls, row_name, sum_windows
from stash.ui.charts.builders import Chart, PlotCurve, PlotPoint, Ruler, make_ruler, plane_chart
from stash.ui.charts.chart import Bar, Grid, Legend, Tag, time_scale

SERIES = {
    "exchange": "interconnect",
    "input": "prep",
    "other": "loop",
    "epoch start": "start",
    "collector": "plain",
    "compilation": "plain",
    "disturbed": "shade",
}
"""Whose colour a stall has, of those that the ladder calls otherwise."""
_MOST_COLUMNS = 120
_LONGEST_GAP = 0.5
"""Of a column: what is further apart was not watched between, and no line joins it."""
_TAG_HEIGHT = 0.93
"""Of the plane: words above it have no room."""
_UNITS = ((3600.0, "h", 2.0), (60.0, "min", 3.0), (1.0, "s", 0.0))
"""Of the run's length: seconds, the unit's name, and of how many of them on it is used."""


def step_course(record: RunRecord) -> Chart:
    """The step and its stalls over time, and the alerts; of a record that has a window."""
    windows = record.windows
    began = record.header.began
    together = math.ceil(len(windows) / _MOST_COLUMNS)
    parts = [sum_windows(windows[at : at + together]) for at in range(0, len(windows), together)]
    columns = [each for each in parts if each is not None]
    last = columns[-1]
    length = last.began + last.seconds - began
    size, unit, _ = next(each for each in _UNITS if length >= each[0] * each[2])
    scale = time_scale(max(each.step_seconds for each in columns))
    across = make_ruler((0.0, length), f"time since the watch began ({unit})", size)
    upward = make_ruler(
        [0.0, *(each.step_seconds for each in columns)], f"one step ({scale.unit})", scale.size
    )
    away = inapplicable_stalls(record.header)
    shown = [
        name
        for name in STALLS
        if name not in away and any(each.stalls.get(name) for each in columns)
    ]
    nodes = record.header.nodes
    begins = [(alert, _alert_moment(alert, record.windows) - began) for alert in record.alerts]
    chart = plane_chart(
        "course",
        "The step over time",
        _step_lines(columns, began),
        across,
        upward,
        _table(columns, shown, nodes),
        "Each column is one stretch of the run, as high as its mean step; its colours are the step's parts. Upright "
        "lines: an alert began or ended.",
        keys=[Legend(SERIES.get(name, name), row_name(name, nodes)) for name in shown],
        rules=[
            *(at for _, at in begins),
            *(alert.when - began for alert in record.alerts if alert.ended),
        ],
        tags=[
            Tag(across.locate(at), _TAG_HEIGHT, _text(alert, nodes), firm=True)
            for alert, at in begins
        ],
    )
    bars = [
        bar for each in columns for bar in _stall_bars(each, shown, began, across, upward, nodes)
    ]
    return replace(chart, bars=tuple(bars))


def _step_lines(columns: Sequence[Window], began: float) -> list[PlotCurve]:
    """The step's line, interrupted where nobody watched."""
    lines: list[list[PlotPoint]] = []
    ended = -math.inf
    for each in columns:
        if each.began - ended > _LONGEST_GAP * each.seconds:
            lines.append([])
        ended = each.began + each.seconds
        lines[-1] += [PlotPoint(at - began, each.step_seconds) for at in (each.began, ended)]
    return [PlotCurve("plain", tuple(points), line=True, dots=False) for points in lines]


def _stall_bars(
    column: Window, shown: Sequence[str], began: float, across: Ruler, upward: Ruler, nodes: int
) -> Iterator[Bar]:
    """The parts of a column's step, one on top of the other."""
    first = column.began - began
    foot = 0.0
    steps = f"steps {column.first_step:,} to {column.last_step:,}"
    for name in shown:
        seconds = column.stalls.get(name)
        if not seconds:
            continue
        tip = f"{steps}: {row_name(name, nodes)} {format_seconds(seconds)} of {format_seconds(column.step_seconds)}"
        sides = across.span(first, first + column.seconds)
        yield Bar(sides, upward.span(foot, foot + seconds), SERIES.get(name, name), tip)
        foot += seconds


def _alert_moment(alert: Alert, windows: Sequence[Window]) -> float:
    """When what it is about began, by its step (Unix time)."""
    for window in reversed(windows):  # a job that was started again counts from 1
        if window.began <= alert.first_told and window.first_step <= alert.step <= window.last_step:
            steps = window.last_step - window.first_step + 1
            return window.began + window.seconds * (alert.step - window.first_step) / steps
    return alert.first_told


def _text(alert: Alert, nodes: int) -> str:
    is_told = alert.seconds is not None and alert.stall is not None
    more = f" +{format_seconds(alert.seconds or 0.0)}" if is_told else ""
    return f"step {alert.step:,}: {alert_name(alert, nodes)}{more}"


def _table(columns: Sequence[Window], shown: Sequence[str], nodes: int) -> Grid:
    rows = []
    for each in columns:
        parts = [each.step_seconds, *(each.stalls.get(name) for name in shown)]
        texts = ["unknown" if seconds is None else format_seconds(seconds) for seconds in parts]
        rows.append((f"{each.first_step:,} to {each.last_step:,}", *texts))
    head = ("step", *(row_name(name, nodes) for name in shown))
    return Grid("The step over time", head, tuple(rows), frozenset({0}), first="steps")
