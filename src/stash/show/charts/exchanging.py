"""The gradient exchange, drawn: when gradients are ready for it, and what it takes beside what steps wait for it."""

from __future__ import annotations

from stash.base.stats.intervals import Interval
from stash.base.words.quantities import plus_minus
from stash.base.words.rounding import Scale, scale_for
from stash.base.words.units import BYTES, format_bytes
from stash.derive.stalls import Breakdown, Communication, Readiness
from stash.show.charts.axes import extent, plain_axis, time_scale, whisker
from stash.show.charts.chart import Bar, Blank, Chart, Dot, Drawn, Lane, Legend, Trail, band, centre
from stash.show.grid import Grid

_MOST_POINTS = 600


def readiness(ready: Readiness) -> Chart | Blank:
    """Bytes that are ready against time; a dot for each bucket, at the moment at which it can be reduced."""
    title = "Gradients becoming ready"
    if not ready.gradients:
        return Blank("gradients", title, ready.why_no_buckets or "no gradient was seen")
    last = ready.gradients[-1]
    time = time_scale(last.ready_seconds or 1e-6)
    size = scale_for(last.bytes_so_far, BYTES)
    x, y = extent([each.ready_seconds for each in ready.gradients]), extent([float(last.bytes_so_far)])
    every = max(1, len(ready.gradients) // _MOST_POINTS)
    points, before = [(x.at(0.0), y.at(0.0))], 0
    for each in (*ready.gradients[::every], last):
        points += [(x.at(each.ready_seconds), y.at(before)), (x.at(each.ready_seconds), y.at(each.bytes_so_far))]
        before = each.bytes_so_far
    marks: list[Drawn] = [Trail(tuple(points), "plain")]
    so_far = 0
    for bucket in ready.buckets:
        so_far += bucket.bytes
        says = f"bucket {bucket.number}: {format_bytes(bucket.bytes)}, ready after {time.text(bucket.ready_seconds)}"
        marks.append(Dot(x.at(bucket.ready_seconds), min(1.0, y.at(so_far)), "interconnect", says))
    return Chart(
        name="gradients",
        title=title,
        caption=f"Buckets unknown: {ready.why_no_buckets}." if ready.why_no_buckets else "",
        how="Bytes of gradients that the backward pass has ready. A bucket can be exchanged from its dot on, while "
        "the rest is still computed.",
        x=plain_axis(x, f"{time.unit} since the first gradient", time.size),
        y=plain_axis(y, f"{size.unit} ready", size.size),
        marks=tuple(marks),
        keys=(Legend("plain", "gradients"), *([Legend("interconnect", "buckets")] if ready.buckets else [])),
        table=_ready_table(ready, time),
    )


def _ready_table(ready: Readiness, time: Scale) -> Grid:
    named = [(f"bucket {each.number}", each.bytes, each.ready_seconds) for each in ready.buckets]
    named += [(each.name, each.bytes, each.ready_seconds) for each in ready.gradients]
    return Grid(
        title="Buckets and gradients",
        first="what",
        head=("size", f"ready, {time.unit}"),
        rows=tuple((name, format_bytes(size), time.number(at)) for name, size, at in named),
        texts=frozenset({0}),
    )


def exchange(breakdown: Breakdown) -> Chart | Blank:
    """The exchange by itself, what is exposed of it, and what hides behind the backward pass."""
    title = "The exchange, by itself and exposed"
    found = breakdown.communication
    if found.exposed_seconds is None:
        return Blank("exchange", title, "no rung with and none without an exchange were both climbed")
    exposed = Interval(value=found.exposed_seconds, low=found.exposed_low, high=found.exposed_high)
    bars = _parts(found, exposed)
    scale = time_scale(max(found.exposed_seconds, found.total_seconds or 0.0))
    x = extent([exposed.low, exposed.high, *(value for _, value, *_ in bars)])
    marks: list[Drawn] = []
    lanes, rows = [], []
    for number, (name, value, spread, series, why) in enumerate(bars):
        if value is None:
            lanes.append(Lane(name, f"unknown: {why}", quiet=True))
            rows.append((name, "unknown", "", why))
            continue
        around = plus_minus(spread, scale) if spread is not None else ""
        text = f"{scale.number(value)} {around} {scale.unit}".replace("  ", " ")
        marks.append(Bar(x.span(0.0, value), band(number, len(bars)), series, f"{name}: {text}"))
        if spread is not None:
            marks += whisker(x, spread.low, spread.high, centre(number, len(bars)))
        lanes.append(Lane(name, text))
        rows.append((name, scale.number(value), around, ""))
    return Chart(
        name="exchange",
        title=title,
        caption=_exchange_in_words(breakdown),
        how="",
        x=plain_axis(x, f"{scale.unit} a step", scale.size),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid(
            title="The exchange of a step",
            first="part",
            head=(f"time, {scale.unit}", "95%", "remark"),
            rows=tuple(rows),
            texts=frozenset({0, 3}),
        ),
    )


_PartOfIt = tuple[str, float | None, Interval | None, str, str]
"""Name, seconds, interval if known, series, why it is unknown."""


def _parts(found: Communication, exposed: Interval) -> list[_PartOfIt]:
    return [
        ("by itself", found.total_seconds, None, "transfer", "the collectives were not run by themselves"),
        ("without its bytes", found.latency_seconds, None, "plain", "latency was not measured"),
        ("exposed", found.exposed_seconds, exposed, "interconnect", ""),
        ("hidden", found.hidden_seconds, None, "compute", "the exchange by itself is unknown"),
    ]


def _exchange_in_words(breakdown: Breakdown) -> str:
    found = breakdown.communication
    share = ""
    if found.exposed_seconds is not None and found.exposed_seconds > 0:
        share = f", {found.exposed_seconds / breakdown.step_seconds:.0%} of it"
    text = f"Exposed is what a step waits for the exchange{share}; the rest hides behind the backward pass."
    if found.bytes:
        text = f"{format_bytes(found.bytes)} a step and rank. {text}"
    if found.slowed:
        return f"{text} Steps wait longer than it takes by itself: exchanging and computing slow each other down."
    if found.hidden_seconds is not None and found.hidden_seconds < 0:
        return f"{text} Below zero: more was waited than the exchange takes by itself, within what is known."
    return text
