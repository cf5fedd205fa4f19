"""Charts of what machines do for a step: exchange gradients, load data, be busy; and of what their links carry."""

from __future__ import annotations

from collections.abc import Sequence

from stash.analysis.breakdown import Breakdown
from stash.analysis.findings.probe_reading import Reading
from stash.analysis.findings.rates import Curve, Link
from stash.analysis.usage import DataBlock, Readiness, Resource, Use
from stash.core.formatting import bits_parts, parts, plus_minus
from stash.core.intervals import Interval
from stash.core.ladder import stall_names
from stash.core.units import BYTES, Scale, format_bits, format_bytes, format_rate, format_seconds, pace, scale_for
from stash.report.profile_page import UNKNOWN
from stash.report.step_charts import rounds_ruler
from stash.ui.charts.builders import (
    CURVES,
    BarPiece,
    LaneRow,
    PlotCurve,
    PlotPoint,
    Ruler,
    Value,
    ends_of,
    lane_chart,
    lanes_ruler,
    plane_chart,
    ruler,
    worded_ruler,
)
from stash.ui.charts.chart import Axis, Blank, Chart, Extent, Grid, Legend, Tick, time_scale

# The gradient exchange: when gradients are ready for it, and what it takes against what steps wait for it.

_MAX_POINTS = 600


def readiness(ready: Readiness) -> Chart | Blank:
    """Bytes that are ready against time; a dot for each bucket, at the moment at which it can be reduced."""
    title = "Gradients becoming ready"
    if not ready.gradients:
        return Blank("gradients", title, ready.why_no_buckets or "no gradient was seen")
    last = ready.gradients[-1]
    time, size = time_scale(last.ready_seconds or 1e-6), scale_for(last.bytes_so_far, BYTES)
    every = max(1, len(ready.gradients) // _MAX_POINTS)
    steps, before = [PlotPoint(0.0, 0.0)], 0
    for each in (*ready.gradients[::every], last):
        steps += [PlotPoint(each.ready_seconds, before), PlotPoint(each.ready_seconds, each.bytes_so_far)]
        before = each.bytes_so_far
    buckets, so_far = [], 0
    for bucket in ready.buckets:
        so_far += bucket.bytes
        tip = f"bucket {bucket.number}: {format_bytes(bucket.bytes)}, ready after {time.text(bucket.ready_seconds)}"
        buckets.append(PlotPoint(bucket.ready_seconds, so_far, tip))
    named = [(f"bucket {each.number}", each.bytes, each.ready_seconds) for each in ready.buckets]
    named += [(each.name, each.bytes, each.ready_seconds) for each in ready.gradients]
    table = tuple((name, format_bytes(count), time.number(at)) for name, count, at in named)
    return plane_chart(
        "gradients",
        title,
        [PlotCurve("plain", tuple(steps), line=True, dots=False), PlotCurve("interconnect", tuple(buckets))],
        ruler([each.ready_seconds for each in ready.gradients], f"{time.unit} since the first gradient", time.size),
        ruler([float(last.bytes_so_far)], f"{size.unit} ready", size.size),
        Grid("Buckets and gradients", ("size", f"ready, {time.unit}"), table, frozenset({0}), first="what"),
        how="Bytes of gradients that the backward pass has ready. A bucket can be exchanged from its dot on, while "
        "the rest is still computed.",
        caption=f"Buckets unknown: {ready.why_no_buckets}." if ready.why_no_buckets else "",
        keys=[Legend("plain", "gradients"), *([Legend("interconnect", "buckets")] if ready.buckets else [])],
    )


def exchange(breakdown: Breakdown) -> Chart | Blank:
    """The exchange by itself, what is exposed of it, and what hides behind the backward pass."""
    found, title = breakdown.communication, "The exchange, by itself and exposed"
    if found.exposed_seconds is None:
        return Blank("exchange", title, "not both a rung with and one without an exchange were run")
    exposed = Interval(value=found.exposed_seconds, low=found.exposed_low, high=found.exposed_high)
    scale = time_scale(max(found.exposed_seconds, found.total_seconds or 0.0))
    rows, table = [], []
    hidden, why_none = found.hidden_seconds, "the exchange by itself is unknown"
    if hidden is not None and hidden < 0:
        why_none = f"none: steps wait {format_seconds(-hidden)} longer than it takes by itself"
        hidden = None
    for name, value, series, why in (
        ("by itself", found.total_seconds, "transfer", "the collectives were not run by themselves"),
        ("without its bytes", found.latency_seconds, "plain", "latency was not measured"),
        ("exposed", found.exposed_seconds, "interconnect", ""),
        ("hidden", hidden, "compute", why_none),
    ):
        if value is None:
            rows.append(LaneRow(name, unknown=why))
            table.append((name, UNKNOWN, "", why))
            continue
        spread = plus_minus(exposed, scale) if name == "exposed" else ""
        text = f"{scale.number(value)} {spread} {scale.unit}".replace("  ", " ")
        low, high = (exposed.low, exposed.high) if name == "exposed" else (None, None)
        rows.append(LaneRow(name, text, (BarPiece(0.0, value, series, f"{name}: {text}"),), low, high))
        table.append((name, scale.number(value), spread, ""))
    head, across = (f"time, {scale.unit}", "95%", "remark"), lanes_ruler(rows, f"{scale.unit} a step", scale.size)
    grid = Grid("The exchange of a step", head, tuple(table), frozenset({0, 3}), first="part")
    return lane_chart("exchange", title, rows, across, grid, caption=_exchange_in_words(breakdown))


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
    return text


# The data pipeline: how fast devices and loaders are, and where data blocks read from.

_DATA_SERIES = {"warm": "prep", "cold": "fetch"}


def rates(breakdown: Breakdown) -> Chart | Blank:
    """DS-Analyzer's three rates: of the devices (G), and of the loaders alone (P and F)."""
    title, known = "How fast the parts are", breakdown.rates
    if known.device is None and known.prep is None and known.fetch is None:
        return Blank("rates", title, "neither devices nor loaders were measured by themselves")
    rows, table = [], []
    for name, rate, series, why in (
        ("devices (G)", known.device, "compute", "no replayed rung of all ranks, or samples not counted"),
        ("loaders, files in memory (P)", known.prep, "prep", "the loaders were not measured alone"),
        ("loaders, files on disk (F)", known.fetch, "fetch", "the loaders were not measured alone on cold files"),
        ("the job, as it runs", breakdown.samples_per_second, "plain", "samples were not counted"),
    ):
        if rate is None:
            rows.append(LaneRow(name, unknown=why))
            table.append((name, UNKNOWN, why))
        else:
            text = f"{pace(rate)} samples/s"
            rows.append(LaneRow(name, text, (BarPiece(0.0, rate, series, f"{name}: {text}"),)))
            table.append((name, pace(rate), ""))
    grid = Grid("Rates", ("samples/s", "remark"), tuple(table), frozenset({0, 2}), first="part")
    how = "Each part by itself, measured once in this profile; a job is no faster than its slowest part."
    return lane_chart(
        "rates", title, rows, lanes_ruler(rows, "samples/s of the whole job"), grid, how, _limit(breakdown)
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
        return Blank("residency", title, "no rung that reads data was run")
    seen: dict[str, list[PlotPoint]] = {}
    for block in blocks:
        if block.resident is not None:
            tip = f"round {block.round + 1}, {block.rung}: {block.resident:.1%} of the pages in memory"
            seen.setdefault(block.rung, []).append(PlotPoint(block.round + 1, block.resident, tip))
    if not seen:
        return Blank("residency", title, "no block recorded how much of its files was in memory")
    shares = Axis("of the files' pages in memory", tuple(Tick(part / 4, f"{25 * part}%") for part in range(5)))
    return plane_chart(
        "residency",
        title,
        [PlotCurve(_DATA_SERIES[rung], tuple(points)) for rung, points in seen.items()],
        rounds_ruler([block.round + 1 for block in blocks]),
        Ruler(Extent(0.0, 1.0), shares),
        Grid(
            "What every data block read",
            ("rung", "in memory before", "fetched from storage, a sample", "files opened, a sample", "step waited"),
            tuple(map(_block_row, blocks)), frozenset({1}), first="round",
        ),
        how="Pages of the files that were in the page cache just before each block, of the rank that had most. Cold "
        "blocks belong near 0%, warm ones near 100%. Caches below the operating system's are not seen.",
        keys=[Legend(_DATA_SERIES[rung], rung) for rung in seen],
    )  # fmt: skip


def _block_row(block: DataBlock) -> tuple[str, ...]:
    resident = UNKNOWN if block.resident is None else f"{block.resident:.1%}"
    fetched, opened = (UNKNOWN if n is None else format_bytes(n) for n in (block.fetched_bytes, block.file_bytes))
    waited = UNKNOWN if block.wait_seconds is None else format_seconds(block.wait_seconds)
    return str(block.round + 1), block.rung, resident, fetched, opened, waited


# How busy the machines were under each rung: shares of cores and GPUs, and bytes of network and disk.

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
    lanes: dict[str, list[Value]] = {rung: [] for rung in rungs}
    for use in known:
        what, series = _SHARES[use.resource]
        tip = f"{use.rung}, {what}: {_PERCENT.text(use.amount)}"
        lanes[use.rung].append(Value(use.amount, series, tip, use.least, use.most))
    rows = [LaneRow(rung, values=tuple(values)) for rung, values in lanes.items()]
    present: list[Resource] = [each for each in _SHARES if any(use.resource == each for use in known)]
    missing = [_SHARES[each][0] for each in _SHARES if each not in present]
    by = {(use.rung, use.resource): use for use in known}
    table = tuple((rung, *(_use_cell(by.get((rung, each)), _PERCENT) for each in present)) for rung in rungs)
    return lane_chart(
        name, title, rows, ruler([1.0, *ends_of(rows)], "% of the time", 0.01),
        Grid(title, tuple(f"{_SHARES[each][0]}, %" for each in present), table, frozenset({0}), first="rung"),
        how="A node's mean over rounds; lines reach from the round with least to the one with most.",
        caption=f"Unknown: {', '.join(missing)}." if missing else "",
        keys=[Legend(_SHARES[each][1], _SHARES[each][0]) for each in present],
    )  # fmt: skip


def traffic(uses: Sequence[Use], rungs: Sequence[str], resource: Resource) -> Chart | Blank:
    """Bytes per second of the ``network`` or the ``disk`` by rung."""
    title, how = {
        "network": ("Network, rung by rung",
                    "Bytes that a node sent on all interfaces, loopback included"),
        "disk": ("Disk, rung by rung", "Bytes that a node read from all block devices"),
    }[resource]  # fmt: skip
    by = {use.rung: use for use in uses if use.resource == resource}
    if not by:
        return Blank(resource, title, f"no block recorded the bytes of its host's {resource}")
    scale = scale_for(max(use.amount for use in by.values()), BYTES)
    rows = []
    for rung, series in zip(rungs, stall_names(rungs), strict=True):
        use = by.get(rung)
        if use is None:
            rows.append(LaneRow(rung, unknown="not recorded"))
            continue
        text = f"{scale.number(use.amount)} {scale.unit}/s"
        rows.append(LaneRow(rung, text, (BarPiece(0.0, use.amount, series, f"{rung}: {text}"),), use.least, use.most))
    table = tuple((rung, _use_cell(by.get(rung), scale)) for rung in rungs)
    return lane_chart(
        resource, title, rows, lanes_ruler(rows, f"{scale.unit}/s a node", scale.size),
        Grid(title, (f"{scale.unit}/s",), table, frozenset({0}), first="rung"),
        how=f"{how}, a second: means over rounds, and lines from the round with least to the one with most.",
    )  # fmt: skip


def _use_cell(use: Use | None, scale: Scale) -> str:
    if use is None:
        return UNKNOWN
    return f"{scale.number(use.amount)} ({scale.number(use.least)} to {scale.number(use.most)})"


# What links carry: every group's rates on one logarithmic axis, and all-reduce by message size.


def links(reading: Reading, several: bool) -> Chart | Blank:
    """A row for each group of links, of all machines: its members' rates, on one logarithmic axis."""
    title = "What the links carry"
    groups: dict[str, list[Link]] = {}
    for link in reading.links:
        if link.unit == "bytes/s" and link.rate.value > 0:
            groups.setdefault(link.group, []).append(link)
    if not groups:
        return Blank("links", title, "no link was measured")
    rows = []
    for name, members in groups.items():
        values = []
        for link in members:
            low = link.rate.low if link.rate.low is not None and link.rate.low > 0 else None
            tip = f"{name}, {_which(link, several)}: {' '.join(rate_parts(link))}"
            values.append(Value(link.rate.value, "contention", tip, low, link.rate.high, line="plain"))
        slowest = min(members, key=lambda link: link.rate.value)
        rows.append(LaneRow(name, " ".join(rate_parts(slowest)), values=tuple(values)))
    table = tuple(
        (name, _which(link, several), *rate_parts(link)) for name, members in groups.items() for link in members
    )
    return lane_chart(
        "links", title, rows, worded_ruler(ends_of(rows), "bytes a second", format_rate, by_powers=True),
        Grid("Every measured link", ("link", "rate", "95%"), table, frozenset({0, 1}), first="group"),
        how="Each dot is a link, with its 95% interval; next to a row stands the slowest one's rate. The axis is "
        "logarithmic: from line to line it is ten times as much.",
    )  # fmt: skip


def _which(link: Link, several: bool) -> str:
    return ", ".join(part for part in (link.hostname if several else "", link.member) if part) or "the only one"


def rate_parts(link: Link) -> tuple[str, str]:
    """Rate and spread of a link, in bits of networks and in bytes of all others."""
    return bits_parts(link.rate) if link.part == "streams" else parts(link.rate, link.unit)


def all_reduce(exchanges: Sequence[Curve]) -> Chart | Blank:
    """Bus bandwidth against message size, both logarithmic; a line for each exchange that was measured."""
    title = "All-reduce, by message size"
    known = [each for each in exchanges if each.sizes]
    if not known:
        return Blank("all-reduce", title, "no exchange was measured")
    curves, keys, rows = [], [], []
    for number, each in enumerate(known):
        series = CURVES[number % len(CURVES)]
        where = f"across {each.nodes} nodes" if each.nodes > 1 else f"inside {each.hostname}"
        name, points = f"{each.backend}, {each.ranks} ranks {where}", []
        for size in each.sizes:
            bus = size.bus_bytes_per_second.scaled(8)
            low, high = (bus.low, bus.high) if bus.low is not None and bus.low > 0 else (None, None)
            tip = f"{name}: {format_bytes(size.bytes)} at {format_bits(bus.value / 8)}"
            points.append(PlotPoint(size.bytes, bus.value, tip, low, high))
            rows.append((name, format_bytes(size.bytes), *parts(size.seconds, "seconds"), format_bits(bus.value / 8)))
        curves.append(PlotCurve(series, tuple(points), line=True))
        keys.append(Legend(series, name))
    every = [point for curve in curves for point in curve.points]
    upright = [end for point in every for end in (point.y, point.low, point.high)]
    return plane_chart(
        "all-reduce",
        title,
        curves,
        worded_ruler([point.x for point in every], "message", format_bytes, by_powers=True),
        worded_ruler(upright, "bus bandwidth", lambda bits: format_bits(bits / 8), by_powers=True),
        Grid(title, ("message", "time", "95%", "bus bandwidth"), tuple(rows), frozenset({0}), first="exchange"),
        how="Bus bandwidth as nccl-tests defines it: payload / time × 2(p−1)/p for p ranks, with 95% intervals.",
        keys=keys,
    )
