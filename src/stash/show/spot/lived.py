"""A training that was lived through, drawn: who was there when, and speed and loss as predicted and as observed.

Takes a run's log by what it has, so that nothing here depends on how a log is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from stash.base.words.rental import span_scale
from stash.base.words.units import format_seconds
from stash.show.charts.axes import axis, extent, plain_axis
from stash.show.charts.chart import Bar, Blank, Chart, Dot, Drawn, Lane, Legend, Rule, Trail, band, centre
from stash.show.grid import Grid
from stash.show.spot.rows import fleet

_GOES = {"left": "left, with nothing lost", "lost": "gone"}
_MOST_POINTS = 500
"""Of a line: more than there are pixels to tell them apart."""


class LoggedEvent(Protocol):
    """Something that happened to somebody; seconds, ``None`` where nobody knows when."""

    @property
    def at(self) -> float | None: ...
    @property
    def what(self) -> str: ...
    @property
    def who(self) -> str: ...


class LoggedStretch(Protocol):
    """A time in which nobody came or went; updates per second."""

    @property
    def start(self) -> float: ...
    @property
    def stop(self) -> float: ...
    @property
    def workers(self) -> Mapping[str, int]: ...
    @property
    def predicted(self) -> float | None: ...
    @property
    def observed(self) -> float: ...


class LoggedUpdates(Protocol):
    """One entry for each update."""

    @property
    def seconds(self) -> Sequence[float]: ...
    @property
    def loss(self) -> Sequence[float | None]: ...


class LivedRun(Protocol):
    """What is drawn of a log."""

    @property
    def events(self) -> Sequence[LoggedEvent]: ...
    @property
    def stretches(self) -> Sequence[LoggedStretch]: ...
    @property
    def updates(self) -> LoggedUpdates: ...
    @property
    def loss_window(self) -> int: ...


def presence(run: LivedRun) -> Chart | Blank:
    """A row for each worker: from when to when it was there, and how it went."""
    name, title = "presence", "Who was there"
    spans = _spans(run)
    if not spans:
        return Blank(name, title, "nobody joined")
    end = max(stop for _, _, stop, _ in spans)
    x, scale = extent([end / span_scale(end).size]), span_scale(end)
    marks: list[Drawn] = []
    for row, (who, start, stop, how) in enumerate(spans):
        says = f"{who}: {format_seconds(start)} to {format_seconds(stop)}, {how}"
        marks.append(Bar(x.span(start / scale.size, stop / scale.size), band(row, len(spans)), "compute", says))
        if how != "there to the end":
            marks.append(Dot(x.at(stop / scale.size), centre(row, len(spans)), "slower", says))
    return Chart(
        name=name,
        title=title,
        caption="",
        how="A bar from when each worker joined until it was gone; a dot where it went before the end.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        marks=tuple(marks),
        lanes=tuple(Lane(who, how) for who, _, _, how in spans),
        table=Grid(
            title,
            ("joined", "gone", "how"),
            tuple((who, format_seconds(start), format_seconds(stop), how) for who, start, stop, how in spans),
            frozenset({0, 3}),
            first="worker",
        ),
    )


def _spans(run: LivedRun) -> list[tuple[str, float, float, str]]:
    """(worker, joined, gone, how), in the order in which they joined."""
    known = [(event.at, event) for event in run.events if event.at is not None]
    end = max([*(at for at, _ in known), *run.updates.seconds, 0.0])
    found = []
    for at, event in known:
        if event.what == "joined":
            later = [(when, each) for when, each in known if when >= at and each.who == event.who]
            gone = next(((when, each.what) for when, each in later if each.what in _GOES), None)
            stop, how = (end, "there to the end") if gone is None else (gone[0], _GOES[gone[1]])
            found.append((event.who, at, stop, how))
    return sorted(found, key=lambda span: span[1])


def iterations(run: LivedRun) -> Chart | Blank:
    """Seconds between updates, stretch by stretch: as observed, and as predicted of such a fleet."""
    name, title = "iterations", "Time of an update, predicted and observed"
    known = [each for each in run.stretches if each.observed > 0 and each.stop > each.start]
    if not known:
        return Blank(name, title, "no update was made while a fleet stayed as it was")
    scale = span_scale(known[-1].stop)
    pairs = [(1 / each.observed, None if not each.predicted else 1 / each.predicted) for each in known]
    x = extent([known[-1].stop / scale.size])
    y = extent([value for pair in pairs for value in pair])
    marks: list[Drawn] = [Rule(x.at(each.start / scale.size)) for each in known[1:]]
    for each, (observed, predicted) in zip(known, pairs, strict=True):
        ends = x.at(each.start / scale.size), x.at(each.stop / scale.size)
        if predicted is not None:
            marks.append(Trail(tuple((end, y.at(predicted)) for end in ends), "interconnect"))
        marks.append(Trail(tuple((end, y.at(observed)) for end in ends), "contention"))
        said = "nothing" if predicted is None else format_seconds(predicted)
        says = f"{fleet(each.workers)}: {format_seconds(observed)}, predicted {said}"
        marks.append(Dot(sum(ends) / 2, y.at(observed), "contention", says))
    rows = tuple(
        (
            f"{each.start / scale.size:.1f}",
            fleet(each.workers),
            format_seconds(observed),
            "unknown" if predicted is None else format_seconds(predicted),
            "" if predicted is None else f"{predicted / observed - 1:+.1%}",
        )
        for each, (observed, predicted) in zip(known, pairs, strict=True)
    )
    return Chart(
        name=name,
        title=title,
        caption="" if all(each.predicted for each in known) else "Of some fleets nothing was predicted.",
        how="Mean seconds from one update of all workers to the next; lines across are where somebody came or went.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        y=axis(y, "one update", format_seconds),
        marks=tuple(marks),
        keys=(Legend("contention", "observed"), Legend("interconnect", "predicted")),
        table=Grid(
            title, ("fleet", "observed", "predicted", "off"), rows, frozenset({1}), first=f"from, {scale.unit}"
        ),
    )


def losses(run: LivedRun, goal: float | None = None, predicted_seconds: float | None = None) -> Chart | Blank:
    """The loss's running mean over time, the goal, and when it was predicted to be reached."""
    name, title = "losses", "Loss, predicted and observed"
    points = _running(run)
    if len(points) < 2:
        return Blank(name, title, f"fewer than two means of {run.loss_window} losses are known")
    scale = span_scale(max(points[-1][0], predicted_seconds or 0.0))
    x = extent([points[-1][0] / scale.size, None if predicted_seconds is None else predicted_seconds / scale.size])
    y = extent([*(loss for _, loss in points), goal], zero=False)
    marks: list[Drawn] = []
    if goal is not None:
        marks.append(Trail(((0.0, y.at(goal)), (1.0, y.at(goal))), "plain"))
        if predicted_seconds is not None:
            says = f"predicted: {goal:g} after {format_seconds(predicted_seconds)}"
            marks.append(Dot(x.at(predicted_seconds / scale.size), y.at(goal), "interconnect", says))
    marks.append(Trail(tuple((x.at(at / scale.size), y.at(loss)) for at, loss in points), "contention"))
    keys = [Legend("contention", "observed")]
    if goal is not None:
        keys.append(Legend("plain", f"goal, {goal:g}"))
        keys += [] if predicted_seconds is None else [Legend("interconnect", "predicted to be reached")]
    return Chart(
        name=name,
        title=title,
        caption="",
        how=f"Mean over the last {run.loss_window} updates, each before it was applied.",
        x=plain_axis(x, f"{scale.unit} since training's coordinator began"),
        y=plain_axis(y, "loss"),
        marks=tuple(marks),
        keys=tuple(keys),
        table=Grid(
            title,
            ("loss",),
            tuple((f"{at / scale.size:.2f}", f"{loss:.4g}") for at, loss in points[:: max(len(points) // 20, 1)]),
            frozenset(),
            first=scale.unit,
        ),
    )


def _running(run: LivedRun) -> list[tuple[float, float]]:
    """(second, mean of the last losses that are numbers), as many as can be told apart."""
    known = [(at, loss) for at, loss in zip(run.updates.seconds, run.updates.loss, strict=True) if loss is not None]
    sums = [0.0]
    for _, loss in known:
        sums.append(sums[-1] + loss)
    window = max(run.loss_window, 1)
    means = [
        (known[last - 1][0], (sums[last] - sums[last - window]) / window) for last in range(window, len(known) + 1)
    ]
    return means[:: max(len(means) // _MOST_POINTS, 1)]
