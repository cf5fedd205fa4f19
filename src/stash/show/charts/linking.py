"""What a machine's links carry, drawn: every group's rate beside the catalog's, and all-reduce by message size."""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.words.quantities import bits_parts, parts
from stash.base.words.units import format_bits, format_bytes, format_rate
from stash.derive.findings import Curve, Link, Reading
from stash.show.charts.axes import axis, logarithmic, whisker
from stash.show.charts.chart import Blank, Chart, Dot, Drawn, Lane, Legend, Trail, Whisker, centre
from stash.show.grid import Grid

_CURVES = ("contention", "network", "compute", "prep", "interconnect", "fetch", "transfer")
"""Colours that curves take in turn."""


def links(reading: Reading, several: bool) -> Chart | Blank:
    """A row for each group of links, of all machines: its members' rates, on one logarithmic axis."""
    title = "What the links carry"
    groups: dict[str, list[Link]] = {}
    for link in reading.links:
        if link.unit == "bytes/s" and link.rate.value > 0:
            groups.setdefault(link.group, []).append(link)
    if not groups:
        return Blank("links", title, "no link was measured")
    ends = ((link.rate.value, link.rate.low, link.rate.high) for members in groups.values() for link in members)
    x = logarithmic([end for each in ends for end in each if end is not None])
    marks: list[Drawn] = []
    lanes = []
    for number, (name, members) in enumerate(groups.items()):
        y = centre(number, len(groups))
        for link in members:
            low, high = link.rate.low, link.rate.high
            if low is not None and low > 0:
                marks += whisker(x, low, high, y, "plain")
            says = f"{name}, {_which(link, several)}: {_rate(link)}"
            marks.append(Dot(x.at(link.rate.value), y, "contention", says))
        slowest = min(members, key=lambda link: link.rate.value)
        lanes.append(Lane(name, _rate(slowest)))
    rows = tuple((name, _which(link, several), *_cells(link)) for name, members in groups.items() for link in members)
    return Chart(
        name="links",
        title=title,
        caption="",
        how="Each dot is a link, with its 95% interval; beside a row stands the slowest one's rate. The axis is "
        "logarithmic: from line to line it is ten times as much.",
        x=axis(x, "bytes a second", format_rate),
        marks=tuple(marks),
        lanes=tuple(lanes),
        table=Grid("Every measured link", ("link", "rate", "95%"), rows, frozenset({0, 1}), first="group"),
    )


def _which(link: Link, several: bool) -> str:
    return ", ".join(part for part in (link.hostname if several else "", link.member) if part) or "the only one"


def _cells(link: Link) -> tuple[str, str]:
    return bits_parts(link.rate) if link.part == "streams" else parts(link.rate, link.unit)


def _rate(link: Link) -> str:
    return " ".join(_cells(link))


def all_reduce(curves: Sequence[Curve]) -> Chart | Blank:
    """Bus bandwidth against message size, both logarithmic; a line for each exchange that was measured."""
    title = "All-reduce, by message size"
    known = [curve for curve in curves if curve.sizes]
    if not known:
        return Blank("all-reduce", title, "no exchange was measured")
    x = logarithmic([float(size.bytes) for curve in known for size in curve.sizes])
    rates = [size.bus_bytes_per_second for curve in known for size in curve.sizes]
    y = logarithmic([8 * end for rate in rates for end in (rate.value, rate.low, rate.high) if end is not None])
    marks: list[Drawn] = []
    keys, rows = [], []
    for number, curve in enumerate(known):
        series = _CURVES[number % len(_CURVES)]
        where = f"across {curve.nodes} nodes" if curve.nodes > 1 else f"inside {curve.hostname}"
        name = f"{curve.backend}, {curve.ranks} ranks {where}"
        keys.append(Legend(series, name))
        points = [(x.at(size.bytes), y.at(8 * size.bus_bytes_per_second.value)) for size in curve.sizes]
        marks.append(Trail(tuple(points), series))
        for size, (across, up) in zip(curve.sizes, points, strict=True):
            bus = size.bus_bytes_per_second
            if bus.low is not None and bus.high is not None and bus.low > 0:
                marks.append(Whisker((across, across), y.span(8 * bus.low, 8 * bus.high), series))
            says = f"{name}: {format_bytes(size.bytes)} at {format_bits(bus.value)}"
            marks.append(Dot(across, up, series, says))
            rows.append((name, format_bytes(size.bytes), *parts(size.seconds, "seconds"), format_bits(bus.value)))
    return Chart(
        name="all-reduce",
        title=title,
        caption="",
        how="Bus bandwidth as nccl-tests defines it: payload / time × 2(p−1)/p for p ranks, with 95% intervals.",
        x=axis(x, "message", format_bytes),
        y=axis(y, "bus bandwidth", lambda bits: format_bits(bits / 8)),
        marks=tuple(marks),
        keys=tuple(keys),
        table=Grid(title, ("message", "time", "95%", "bus bandwidth"), tuple(rows), frozenset({0}), first="exchange"),
    )
