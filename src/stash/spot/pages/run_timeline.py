"""A training that was lived through, drawn: who was there when, and speed and loss as predicted and as observed.

Takes a run's log as it was kept, and computes nothing but running means.
"""

from __future__ import annotations

from stash.core.formatting import span_scale
from stash.core.units import format_seconds
from stash.spot.records.runs import SpotLog
from stash.ui.charts.builders import (
    BarPiece,
    LaneRow,
    PlotCurve,
    PlotPoint,
    Value,
    lane_chart,
    level,
    plane_chart,
    ruler,
)
from stash.ui.charts.chart import Blank, Chart, Grid, Legend

_COMES = ("joined", "server joined")
_GOES = {"left": "left, with nothing lost", "lost": "gone", "server lost": "gone"}
_STAYED = "there to the end"
_FAR = 3
"""Times the run's length: what is predicted for later would leave no room for what came."""
_MAX_POINTS = 500
"""Of a line: a screen has no more pixels."""


def presence(log: SpotLog) -> Chart | Blank:
    """A row for each machine: from when to when it was there, and how it went."""
    name, title = "presence", "Who was there"
    spans = _spans(log)
    if not spans:
        return Blank(name, title, "no worker joined")
    scale = span_scale(max(stop for _, _, stop, _ in spans))
    rows, table = [], []
    for who, start, stop, how in spans:
        begin, end = format_seconds(start), format_seconds(stop)
        tip = f"{who}: {begin} to {end}, {how}"
        gone = () if how == _STAYED else (Value(stop, "slower", tip),)
        rows.append(LaneRow(who, how, (BarPiece(start, stop, "compute", tip),), values=gone))
        table.append((who, begin, end, how))
    return lane_chart(
        name,
        title,
        rows,
        ruler([stop for _, _, stop, _ in spans], f"{scale.unit} since training's coordinator began", scale.size),
        Grid(title, ("joined", "gone", "how"), tuple(table), frozenset({0, 3}), first="machine"),
        how="A bar from when each machine joined until it was gone; a dot where it went before the end.",
    )


def _spans(log: SpotLog) -> list[tuple[str, float, float, str]]:
    """(machine, joined, gone, how), in the order in which they joined."""
    known = [(event.at, event) for event in log.events if event.at is not None]
    end = max([*(at for at, _ in known), *log.updates.seconds, 0.0])
    warned = {event.who for event in log.events if event.what == "notice"}
    found = []
    for at, event in known:
        if event.what in _COMES:
            later = [(when, each) for when, each in known if when >= at and each.who == event.who]
            gone = next(((when, each.what) for when, each in later if each.what in _GOES), None)
            stop, how = (end, _STAYED) if gone is None else (gone[0], _GOES[gone[1]])
            if gone is not None and gone[1] == "left" and event.who not in warned:
                how = _STAYED  # it was not revoked: it was sent home when training was over
            found.append((event.who, at, stop, how))
    return sorted(found, key=lambda span: span[1])


def losses(log: SpotLog) -> Chart | Blank:
    """The loss's running mean over time, the goal, and when it was predicted to be reached."""
    name, title = "losses", "Loss, predicted and observed"
    points = _running(log)
    if len(points) < 2:
        return Blank(name, title, f"fewer than two means of {log.loss_window} losses are known")
    end, goal = points[-1][0], log.goal_loss
    reached = None if log.goal_seconds is None else log.updates.seconds[0] + log.goal_seconds
    if reached is not None and reached > _FAR * end:
        reached = None
    scale = span_scale(max(end, reached or 0.0))
    curves, keys = [], [Legend("contention", "observed")]
    if goal is not None:
        curves.append(level(goal))
        keys.append(Legend("plain", f"goal, {goal:g}"))
        if reached is not None:
            tip = f"predicted: {goal:g} {format_seconds(log.goal_seconds or 0.0)} after the first update"
            curves.append(PlotCurve("interconnect", (PlotPoint(reached, goal, tip),)))
            keys.append(Legend("interconnect", "predicted to be reached"))
    observed = tuple(PlotPoint(at, loss) for at, loss in points)
    curves.append(PlotCurve("contention", observed, line=True, dots=False))
    late = goal is not None and log.goal_seconds is not None and reached is None
    rows = tuple((f"{at / scale.size:.2f}", f"{loss:.4g}") for at, loss in points[:: max(len(points) // 20, 1)])
    return plane_chart(
        name,
        title,
        curves,
        ruler([end, reached], f"{scale.unit} since training's coordinator began", scale.size),
        ruler([*(loss for _, loss in points), goal], "loss", zero=False),
        Grid(title, ("loss",), rows, frozenset(), first=scale.unit),
        how=f"Mean over the last {log.loss_window} updates, by samples, each before it was applied.",
        caption="The goal was predicted for long after the end of this run." if late else "",
        keys=keys,
    )


def _running(log: SpotLog) -> list[tuple[float, float]]:
    """(second, mean by samples of the last losses that are numbers), as many as a screen shows."""
    rows = zip(log.updates.seconds, log.updates.loss, log.updates.samples, strict=True)
    known = [(at, loss, samples) for at, loss, samples in rows if loss is not None and samples > 0]
    sums = [(0.0, 0)]
    for _, loss, samples in known:
        sums.append((sums[-1][0] + loss * samples, sums[-1][1] + samples))
    window = max(log.loss_window, 1)
    means = []
    for first, last in zip(range(len(sums) - window), range(window, len(sums)), strict=True):
        (before, fewer), (total, samples) = sums[first], sums[last]
        means.append((known[last - 1][0], (total - before) / (samples - fewer)))
    return means[:: max(len(means) // _MAX_POINTS, 1)]
