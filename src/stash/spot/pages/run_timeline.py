"""A training that was lived through, drawn: who was there when, and speed and loss as predicted and as observed.

Takes a run's log as it was kept, and computes nothing but running means.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.core.formatting import span_scale
from stash.core.units import format_seconds
from stash.spot.records.runs import SpotLog
from stash.ui.charts.chart import (
    Bar,
    Blank,
    Chart,
    Dot,
    Drawn,
    Grid,
    Lane,
    Legend,
    Rule,
    Trail,
    axis,
    band,
    centre,
    extent,
    plain_axis,
)
from stash.ui.tables import fleet

_COMES = ("joined", "server joined")
_GOES = {"left": "left, with nothing lost", "lost": "gone", "server lost": "gone"}
_STAYED = "there to the end"
_FAR = 3
"""Times the run's length: what is predicted for later would leave no room for what came."""
_MAX_POINTS = 500
"""Of a line: more than there are pixels to tell them apart."""


def presence(log: SpotLog) -> Chart | Blank:
    """A row for each machine: from when to when it was there, and how it went."""
    name, title = "presence", "Who was there"
    spans = _spans(log)
    if not spans:
        return Blank(name, title, "nobody joined")
    end = max(stop for _, _, stop, _ in spans)
    x, scale = extent([end / span_scale(end).size]), span_scale(end)
    marks: list[Drawn] = []
    for row, (who, start, stop, how) in enumerate(spans):
        says = f"{who}: {format_seconds(start)} to {format_seconds(stop)}, {how}"
        marks.append(Bar(x.span(start / scale.size, stop / scale.size), band(row, len(spans)), "compute", says))
        if how != _STAYED:
            marks.append(Dot(x.at(stop / scale.size), centre(row, len(spans)), "slower", says))
    return Chart(
        name=name,
        title=title,
        caption="",
        how="A bar from when each machine joined until it was gone; a dot where it went before the end.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        marks=tuple(marks),
        lanes=tuple(Lane(who, how) for who, _, _, how in spans),
        table=Grid(
            title,
            ("joined", "gone", "how"),
            tuple((who, format_seconds(start), format_seconds(stop), how) for who, start, stop, how in spans),
            frozenset({0, 3}),
            first="machine",
        ),
    )


def _spans(log: SpotLog) -> list[tuple[str, float, float, str]]:
    """(machine, joined, gone, how), in the order in which they joined."""
    known = [(event.at, event) for event in log.events if event.at is not None]
    end = max([*(at for at, _ in known), *log.updates.seconds, 0.0])
    told = {event.who for event in log.events if event.what == "notice"}
    found = []
    for at, event in known:
        if event.what in _COMES:
            later = [(when, each) for when, each in known if when >= at and each.who == event.who]
            gone = next(((when, each.what) for when, each in later if each.what in _GOES), None)
            stop, how = (end, _STAYED) if gone is None else (gone[0], _GOES[gone[1]])
            if gone is not None and gone[1] == "left" and event.who not in told:
                how = _STAYED  # nobody took it: it was sent home when training was over
            found.append((event.who, at, stop, how))
    return sorted(found, key=lambda span: span[1])


def iterations(log: SpotLog) -> Chart | Blank:
    """Seconds between updates, stretch by stretch: as observed, and as predicted of such a fleet."""
    name, title = "iterations", "Time of an update, predicted and observed"
    known = [each for each in log.stretches if each.updates]
    if not known:
        return Blank(name, title, "no update was made while a fleet stayed as it was")
    scale = span_scale(known[-1].stop)
    pairs = [(1 / each.observed, None if each.predicted is None else 1 / each.predicted) for each in known]
    x = extent([known[-1].stop / scale.size])
    y = extent([value for pair in pairs for value in pair])
    marks: list[Drawn] = [Rule(x.at(each.start / scale.size)) for each in known[1:]]
    keys = [Legend("contention", "observed")]
    if any(predicted is not None for _, predicted in pairs):
        keys.append(Legend("interconnect", "predicted"))
    for each, (observed, predicted) in zip(known, pairs, strict=True):
        ends = x.at(each.start / scale.size), x.at(each.stop / scale.size)
        if predicted is not None:
            marks.append(Trail(tuple((end, y.at(predicted)) for end in ends), "interconnect"))
        marks.append(Trail(tuple((end, y.at(observed)) for end in ends), "contention"))
        said = "nothing" if predicted is None else format_seconds(predicted)
        says = f"{fleet(each.workers)}: {format_seconds(observed)}, predicted {said}"
        marks.append(Dot(sum(ends) / 2, y.at(observed), "contention", says))
    rows = tuple(
        (f"{each.start / scale.size:.1f}", fleet(each.workers), *_beside(*pair))
        for each, pair in zip(known, pairs, strict=True)
    )
    return Chart(
        name=name,
        title=title,
        caption=_unpredicted([predicted for _, predicted in pairs]),
        how="Mean seconds from one update of all workers to the next; lines across are where somebody came or went.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        y=axis(y, "one update", format_seconds),
        marks=tuple(marks),
        keys=tuple(keys),
        table=Grid(
            title, ("fleet", "observed", "predicted", "off"), rows, frozenset({1}), first=f"from, {scale.unit}"
        ),
    )


def _beside(observed: float, predicted: float | None) -> tuple[str, str, str]:
    if predicted is None:
        return format_seconds(observed), "unknown", ""
    return format_seconds(observed), format_seconds(predicted), f"{predicted / observed - 1:+.1%}"


def _unpredicted(predicted: Sequence[float | None]) -> str:
    if None not in predicted:
        return ""
    return "Of some fleets nothing was predicted." if any(predicted) else "Nothing was predicted."


def losses(log: SpotLog) -> Chart | Blank:
    """The loss's running mean over time, the goal, and when it was predicted to be reached."""
    name, title = "losses", "Loss, predicted and observed"
    points = _running(log)
    if len(points) < 2:
        return Blank(name, title, f"fewer than two means of {log.loss_window} losses are known")
    end, goal = points[-1][0], log.goal_loss
    reached = _predicted_to_be_reached(log, end)
    scale = span_scale(max(end, reached or 0.0))
    x = extent([at / scale.size for at in (end, reached) if at is not None])
    y = extent([*(loss for _, loss in points), goal], zero=False)
    marks: list[Drawn] = []
    keys = [Legend("contention", "observed")]
    if goal is not None:
        marks.append(Trail(((0.0, y.at(goal)), (1.0, y.at(goal))), "plain"))
        keys.append(Legend("plain", f"goal, {goal:g}"))
        if reached is not None:
            says = f"predicted: {goal:g} {format_seconds(log.goal_seconds or 0.0)} after the first update"
            marks.append(Dot(x.at(reached / scale.size), y.at(goal), "interconnect", says))
            keys.append(Legend("interconnect", "predicted to be reached"))
    marks.append(Trail(tuple((x.at(at / scale.size), y.at(loss)) for at, loss in points), "contention"))
    late = goal is not None and log.goal_seconds is not None and reached is None
    rows = points[:: max(len(points) // 20, 1)]
    return Chart(
        name=name,
        title=title,
        caption="The goal was predicted for long after the end of this run." if late else "",
        how=f"Mean over the last {log.loss_window} updates, by samples, each before it was applied.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        y=plain_axis(y, "loss"),
        marks=tuple(marks),
        keys=tuple(keys),
        table=Grid(
            title,
            ("loss",),
            tuple((f"{at / scale.size:.2f}", f"{loss:.4g}") for at, loss in rows),
            frozenset(),
            first=scale.unit,
        ),
    )


def _predicted_to_be_reached(log: SpotLog, end: float) -> float | None:
    """When, in seconds as updates count them; ``None`` where nobody says, or too far beyond the ``end``."""
    if log.goal_seconds is None:
        return None
    reached = log.updates.seconds[0] + log.goal_seconds
    return reached if reached <= _FAR * end else None


def _running(log: SpotLog) -> list[tuple[float, float]]:
    """(second, mean by samples of the last losses that are numbers), as many as can be told apart."""
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
