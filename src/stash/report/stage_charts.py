"""Charts of a step's stages: the gradient exchange, the data pipeline, and how busy the machines were."""

from __future__ import annotations

from collections.abc import Sequence

from stash.analysis.breakdown import Breakdown, Communication
from stash.analysis.usage import DataBlock, Readiness, Resource, Use
from stash.core.formatting import plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import stall_names
from stash.core.units import BYTES, Scale, format_bytes, format_seconds, pace, scale_for
from stash.ui.charts.chart import (
    Axis,
    Bar,
    Blank,
    Chart,
    Dot,
    Drawn,
    Extent,
    Grid,
    Lane,
    Legend,
    Tick,
    Trail,
    band,
    centre,
    extent,
    plain_axis,
    time_scale,
    whisker,
)

# Exchanging ------------------------------------------------------------------------------------------------
# The gradient exchange, drawn: when gradients are ready for it, and what it takes beside what steps wait for it.

_MAX_POINTS = 600


def readiness(ready: Readiness) -> Chart | Blank:
    """Bytes that are ready against time; a dot for each bucket, at the moment at which it can be reduced."""
    title = "Gradients becoming ready"
    if not ready.gradients:
        return Blank("gradients", title, ready.why_no_buckets or "no gradient was seen")
    last = ready.gradients[-1]
    time = time_scale(last.ready_seconds or 1e-6)
    size = scale_for(last.bytes_so_far, BYTES)
    x, y = extent([each.ready_seconds for each in ready.gradients]), extent([float(last.bytes_so_far)])
    every = max(1, len(ready.gradients) // _MAX_POINTS)
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


# Feeding ---------------------------------------------------------------------------------------------------
# The data pipeline, drawn: how fast devices and loaders are, and where data blocks read from.

_SERIES = {"warm": "prep", "cold": "fetch"}
_UNKNOWN = "unknown"


def rates(breakdown: Breakdown) -> Chart | Blank:
    """DS-Analyzer's three rates: of the devices (G), and of the loaders alone (P and F)."""
    title = "How fast the parts are"
    known = breakdown.rates
    named = (
        ("devices (G)", known.device, "compute", "no replayed rung of all ranks, or samples not counted"),
        ("loaders, files in memory (P)", known.prep, "prep", "the loaders were not measured alone"),
        ("loaders, files on disk (F)", known.fetch, "fetch", "the loaders were not measured alone on cold files"),
    )  # fmt: skip
    if all(rate is None for _, rate, *_ in named):
        return Blank("rates", title, "neither devices nor loaders were measured by themselves")
    speed = breakdown.samples_per_second
    x = extent([*(rate for _, rate, *_ in named), speed])
    marks: list[Drawn] = []
    lanes, rows = [], []
    every = (*named, ("the job, as it runs", speed, "plain", "samples were not counted"))
    for number, (name, rate, series, why) in enumerate(every):
        if rate is None:
            lanes.append(Lane(name, f"{_UNKNOWN}: {why}", quiet=True))
            rows.append((name, _UNKNOWN, why))
            continue
        marks.append(Bar(x.span(0.0, rate), band(number, len(every)), series, f"{name}: {pace(rate)} samples/s"))
        lanes.append(Lane(name, f"{pace(rate)} samples/s"))
        rows.append((name, pace(rate), ""))
    return Chart(
        name="rates",
        title=title,
        caption=_limit(breakdown),
        how="Each part by itself, measured once in this profile; a job is no faster than its slowest part.",
        x=plain_axis(x, "samples/s of the whole job"),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid("Rates", ("samples/s", "remark"), tuple(rows), frozenset({0, 2}), first="part"),
    )


def _limit(breakdown: Breakdown) -> str:
    known = {"devices": breakdown.rates.device, "loaders that prepare": breakdown.rates.prep,
             "loaders that read and prepare": breakdown.rates.fetch}  # fmt: skip
    measured = {name: rate for name, rate in known.items() if rate is not None}
    if len(measured) < 2:
        return ""
    slowest = min(measured, key=lambda name: measured[name])
    return f"Slowest are the {slowest}, with {pace(measured[slowest])} samples/s."


def residency(blocks: Sequence[DataBlock]) -> Chart | Blank:
    """How much of the files was in memory before each data block: the proof that cold was cold and warm was warm."""
    title = "Were cold files cold?"
    if not blocks:
        return Blank("residency", title, "no rung that reads data was climbed")
    seen = [(block, block.resident) for block in blocks if block.resident is not None]
    if not seen:
        return Blank("residency", title, "no block recorded how much of its files was in memory")
    numbers = [block.round + 1 for block in blocks]
    x, y = Extent(min(numbers) - 0.5, max(numbers) + 0.5), Extent(0.0, 1.0)
    marks = tuple(
        Dot(x.at(block.round + 1), y.at(resident), _SERIES[block.rung],
            f"round {block.round + 1}, {block.rung}: {resident:.1%} of the pages in memory")
        for block, resident in seen
    )  # fmt: skip
    every = max(1, round((max(numbers) - min(numbers)) / 12))
    ticks = tuple(Tick(x.at(number), str(number)) for number in range(min(numbers), max(numbers) + 1, every))
    return Chart(
        name="residency",
        title=title,
        caption="",
        how="Pages of the files that were in the page cache just before each block, of the rank that had most. Cold "
        "blocks belong near 0%, warm ones near 100%. Caches below the operating system's are not seen.",
        x=Axis("round", ticks),
        y=Axis("of the files' pages in memory", tuple(Tick(part / 4, f"{25 * part}%") for part in range(5))),
        marks=marks,
        keys=tuple(Legend(_SERIES[name], name) for name in dict.fromkeys(block.rung for block, _ in seen)),
        table=_reading(blocks),
    )


def _reading(blocks: Sequence[DataBlock]) -> Grid:
    return Grid(
        title="What every data block read",
        first="round",
        head=("rung", "in memory before", "fetched from storage, a sample", "files opened, a sample", "step waited"),
        rows=tuple(map(_row, blocks)),
        texts=frozenset({1}),
    )


def _row(block: DataBlock) -> tuple[str, ...]:
    return (
        str(block.round + 1),
        block.rung,
        _UNKNOWN if block.resident is None else f"{block.resident:.1%}",
        _UNKNOWN if block.fetched_bytes is None else format_bytes(block.fetched_bytes),
        _UNKNOWN if block.file_bytes is None else format_bytes(block.file_bytes),
        _UNKNOWN if block.wait_seconds is None else format_seconds(block.wait_seconds),
    )


# Busy ------------------------------------------------------------------------------------------------------
# How busy the machines were under each rung, drawn: shares of cores and GPUs, and bytes of network and disk.

_PERCENT = Scale("%", 0.01, 1)
_SHARES: dict[Resource, tuple[str, str]] = {
    "cpu": ("cores busy", "contention"),
    "steal": ("taken by other tenants", "network"),
    "gpu": ("GPU busy", "compute"),
}


def shares(uses: Sequence[Use], rungs: Sequence[str]) -> Chart | Blank:
    """Busy fractions by rung: of cores, of cores by other tenants, and of GPUs."""
    title, name = "Cores and GPUs, rung by rung", "busy"
    known = [use for use in uses if use.resource in _SHARES]
    if not known:
        return Blank(name, title, "no block recorded how busy its host was")
    x = extent([1.0, *(end for use in known for end in (use.least, use.most))])
    marks: list[Drawn] = []
    for use in known:
        y = centre(rungs.index(use.rung), len(rungs))
        marks += whisker(x, use.least, use.most, y, _SHARES[use.resource][1])
        says = f"{use.rung}, {_SHARES[use.resource][0]}: {_PERCENT.text(use.amount)}"
        marks.append(Dot(x.at(use.amount), y, _SHARES[use.resource][1], says))
    present: list[Resource] = [each for each in _SHARES if any(use.resource == each for use in known)]
    missing = [_SHARES[each][0] for each in _SHARES if each not in present]
    by = {(use.rung, use.resource): use for use in known}
    rows = tuple((rung, *(_cell(by.get((rung, each)), _PERCENT) for each in present)) for rung in rungs)
    return Chart(
        name=name,
        title=title,
        caption=f"Unknown: {', '.join(missing)}." if missing else "",
        how="A node's mean over rounds; lines reach from the round with least to the one with most.",
        x=plain_axis(x, "% of the time", 0.01),
        marks=tuple(marks),
        lanes=tuple(Lane(rung) for rung in rungs),
        keys=tuple(Legend(_SHARES[each][1], _SHARES[each][0]) for each in present),
        table=Grid(title, tuple(f"{_SHARES[each][0]}, %" for each in present), rows, frozenset({0}), first="rung"),
    )


def traffic(uses: Sequence[Use], rungs: Sequence[str], resource: Resource) -> Chart | Blank:
    """Bytes per second by rung, of the network or of the disk."""
    title, how = {
        "network": ("Network, rung by rung", "Bytes that a node sent on all interfaces, loopback included"),
        "disk": ("Disk, rung by rung", "Bytes that a node read from all block devices"),
    }[resource]
    by = {use.rung: use for use in uses if use.resource == resource}
    if not by:
        return Blank(resource, title, f"no block recorded the bytes of its host's {resource}")
    scale = scale_for(max(use.amount for use in by.values()), BYTES)
    x = extent([end for use in by.values() for end in (use.least, use.most)])
    series = dict(zip(rungs, stall_names(rungs), strict=True))
    marks: list[Drawn] = []
    lanes = []
    for number, rung in enumerate(rungs):
        use = by.get(rung)
        if use is None:
            lanes.append(Lane(rung, "unknown: not recorded", quiet=True))
            continue
        text = f"{scale.number(use.amount)} {scale.unit}/s"
        marks.append(Bar(x.span(0.0, use.amount), band(number, len(rungs)), series[rung], f"{rung}: {text}"))
        marks += whisker(x, use.least, use.most, centre(number, len(rungs)))
        lanes.append(Lane(rung, text))
    rows = tuple((rung, _cell(by.get(rung), scale)) for rung in rungs)
    return Chart(
        name=resource,
        title=title,
        caption="",
        how=f"{how}, a second: means over rounds, and lines from the round with least to the one with most.",
        x=plain_axis(x, f"{scale.unit}/s a node", scale.size),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid(title, (f"{scale.unit}/s",), rows, frozenset({0}), first="rung"),
    )


def _cell(use: Use | None, scale: Scale) -> str:
    if use is None:
        return "unknown"
    return f"{scale.number(use.amount)} ({scale.number(use.least)} to {scale.number(use.most)})"
