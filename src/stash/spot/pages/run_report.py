"""A training that was lived through, as a page and as JSON.

How its loss fell, who was taken away, who took over, and what that cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stash.core.formatting import span_scale
from stash.core.units import format_count, format_seconds
from stash.spot.run_records import SpotEvent, SpotLog
from stash.ui.charts.builders import Chart, PlotCurve, PlotPoint, level, make_ruler, plane_chart
from stash.ui.charts.chart import Blank, Grid, Legend
from stash.ui.page import Chapter, Page

SCHEMA = 1
_UNKNOWN = "unknown"
_MAX_POINTS = 500
"""Of a line: a screen has no more pixels."""
_PLACES = {"testbed": "an emulated cluster"}


def page(log: SpotLog, source: str = "") -> Page:
    """Who was there, how fast it went and how far; and everything that happened."""
    rates = _rates(log)
    began = log.updates.seconds[0] if log.updates.seconds else None
    books = log.books
    slower = f", {log.slower:g} times slower than planned" if log.slower != 1 else ""
    observed = rates["updates_per_second"]
    speed = "updates/s unknown" if observed is None else f"{observed:.3g} updates/s"
    booked = "how the leases stand is unknown: it ended too suddenly"
    if books is not None:
        kept = "no lease lost, none trained on twice" if books.wrong is None else "see below"
        booked = f"{books.done:,} samples trained on, {format_count(books.reissued, 'lease')} given out again: {kept}"
    number = _UNKNOWN if log.loss is None else f"{log.loss:.4g}"
    sums = (
        speed,
        f"loss {number} (mean of the last {log.loss_window} updates); {_stale(log)}",
        booked,
    )
    wrong = (
        [f"the books are wrong: {books.wrong}"]
        if books is not None and books.wrong is not None
        else []
    )
    texts = filter(None, (line(event, began) for event in log.events))
    place = _PLACES.get(log.on, "this machine")
    return Page(
        title=f"{format_count(len(log.updates.seconds), 'update')} on {place}{slower}: {log.reason}",
        source=source,
        subtitle=(f"{log.job}, by {log.plan}",),
        verdict=tuple(f"{text[0].upper()}{text[1:]}." for text in sums),
        grids=(_takeovers(log),) if log.takeovers else (),
        warnings=tuple(wrong),
        chapters=(
            Chapter("loss", "How far it came", label="Loss", charts=(losses(log),)),
            Chapter(
                "events",
                "What happened",
                label="Events",
                points=tuple(map(str.strip, texts)),
                folded=True,
            ),
        ),
        made=f"{log.created.replace('T', ' ')[:16]} UTC, Stash {log.stash_version}",
    )


def _takeovers(log: SpotLog) -> Grid:
    """Who took over from whom, and in what time."""
    rows = []
    for each in log.takeovers:
        times = (each.noticed_seconds, each.decided_seconds, each.joined_seconds)
        shown = ["" if seconds is None else format_seconds(seconds) for seconds in times]
        notice = "none" if each.notice is None else f"{each.notice:g} s"
        rows.append((each.gone, notice, *shown, each.successor or "none"))
    head = ("notice", "missed", "decided", "joined", "by")
    return Grid("", head, tuple(rows), frozenset({0, 5}), first="gone")


def _stale(log: SpotLog) -> str:
    found = log.updates.staleness
    if not found:
        return "staleness unknown"
    return f"staleness {sum(found) / len(found):.2g} on average, {max(found)} at most"


def losses(log: SpotLog) -> Chart | Blank:
    """The loss's running mean over time, and the goal."""
    name = "losses"
    title = "Loss"
    points = _running(log)
    if len(points) < 2:
        return Blank(name, title, f"fewer than two means of {log.loss_window} losses are known")
    end = points[-1][0]
    goal = log.goal_loss
    scale = span_scale(end)
    observed = PlotCurve(
        "contention", tuple(PlotPoint(at, loss) for at, loss in points), line=True, dots=False
    )
    rows = tuple(
        (f"{at / scale.size:.2f}", f"{loss:.4g}")
        for at, loss in points[:: max(len(points) // 20, 1)]
    )
    return plane_chart(
        name,
        title,
        (observed,) if goal is None else (level(goal), observed),
        make_ruler([end], f"{scale.unit} since training's coordinator began", scale.size),
        make_ruler([*(loss for _, loss in points), goal], "loss", zero=False),
        Grid(title, ("loss",), rows, frozenset(), first=scale.unit),
        how=f"Mean over the last {log.loss_window} updates, by samples, each before it was applied.",
        keys=(
            Legend("contention", "observed"),
            *(() if goal is None else (Legend("plain", f"goal, {goal:g}"),)),
        ),
    )


def _running(log: SpotLog) -> list[tuple[float, float]]:
    """(second, mean by samples of the last losses that are numbers), as many as a screen shows."""
    rows = zip(log.updates.seconds, log.updates.loss, log.updates.samples, strict=True)
    known = np.array(
        [
            (at, loss * samples, samples)
            for at, loss, samples in rows
            if loss is not None and samples > 0
        ]
    )
    window = max(log.loss_window, 1)
    if len(known) < window:
        return []
    sums = np.cumsum(np.vstack([np.zeros(3), known]), axis=0)
    inside = sums[window:] - sums[:-window]
    means = list(
        zip(known[window - 1 :, 0].tolist(), (inside[:, 1] / inside[:, 2]).tolist(), strict=True)
    )
    return means[:: max(len(means) // _MAX_POINTS, 1)]


def line(event: SpotEvent, began: float | None) -> str | None:
    """An event as printed when it happens, timed from the first update; ``None`` for what is shown elsewhere."""
    text = _TEXTS.get(event.what)
    if text is None or event.at is None:
        return None
    clock = f"{event.at - began:8.1f} s  " if began is not None else "           "
    facts = event.model_dump()
    for name in ("leases", "samples"):
        if facts[name] is not None:
            facts[name] = format_count(facts[name], name.removesuffix("s"))
    facts["type"] = f" ({event.type})" if event.type and event.type != "server" else ""
    return clock + text.format_map(facts) + "".join(f"; {each}" for each in event.told)


_TEXTS = {
    "joined": "{who}{type} joined",
    "server joined": "{who} joined",
    "began": "training began",
    "notice": "{who} has notice that it will be gone in {seconds:g} s",
    "wanted": "{who}{type} is launched for {instead_of}",
    "left": "{who} left, with nothing lost",
    "lost": "{who} is gone; {leases} given out again",
    "server lost": "{who} is gone",
    "hangs": "{who} has not answered for 20 s: it is ended, as if it had gone",
    "rolled back": "{who} goes on from its last checkpoint: {samples} to train on again",
}


def document(log: SpotLog) -> dict[str, Any]:
    """What ``--json`` prints: the log without its updates, and what they come to."""
    kept = log.model_dump(exclude={"updates", "log_schema"})
    stretches = [{**each.model_dump(), "observed": each.observed_rate} for each in log.stretches]
    return {
        "schema": SCHEMA,
        **kept,
        "stretches": stretches,
        "updates": len(log.updates.seconds),
        **_rates(log),
    }


def _rates(log: SpotLog) -> dict[str, float | None]:
    """Of the whole run: updates per second, as observed, and as predicted of the fleets that it had."""
    made, seconds = len(log.updates.seconds) - 1, log.seconds
    if log.stretches:
        made = sum(each.updates for each in log.stretches)
        seconds = sum(each.stop - each.start for each in log.stretches)
    known = [
        each.predicted * (each.stop - each.start)
        for each in log.stretches
        if each.predicted is not None
    ]
    whole = bool(known) and len(known) == len(log.stretches)
    return {
        "updates_per_second": made / seconds if seconds else None,
        "predicted_updates_per_second": sum(known) / seconds if whole and seconds else None,
    }
