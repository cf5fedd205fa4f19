"""How busy the machines were under each rung, drawn: shares of cores and GPUs, and bytes of network and disk."""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.ladder import stall_names
from stash.base.words.rounding import Scale, scale_for
from stash.base.words.units import BYTES
from stash.derive.stalls import Use
from stash.derive.stalls.usage import Resource
from stash.show.charts.axes import extent, plain_axis, whisker
from stash.show.charts.chart import Bar, Blank, Chart, Dot, Drawn, Lane, Legend, band, centre
from stash.show.grid import Grid

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
