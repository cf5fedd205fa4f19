"""Dumps of NCCL's (and RCCL's) Inspector plugin: bandwidth by size, and which communicator is slower than its like.

A line is one collective of one rank (NVIDIA/nccl, plugins/profiler/inspector, formats v4.0 to v4.3). From v4.3 on the
communicator stands in the line before a batch of them alone. Of a collective the rank that took least time waited
for none, so that its time and bandwidth are the collective's. Sends and receives are not read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from stash.analysis.findings.rates import Curve
from stash.core.errors import UserError
from stash.core.files import opened_regular
from stash.core.grouping import group_by
from stash.core.printable import printable_line
from stash.core.units import (
    format_bytes,
    format_count,
    format_rate,
    format_seconds,
)
from stash.ui.charts.chart import Grid
from stash.ui.page import Chapter, Page

_LONGEST = 1 << 20
"""Bytes of a line."""
_MOST = 20
_SLOW = 0.9
"""Of the bandwidth that communicators of as many ranks usually have, below which one is called slow."""
_NEAR = 2.0
"""A probe's size that is at most so many times larger or smaller stands beside a collective's."""


class _Header(msgspec.Struct):
    id: str
    n_ranks: int
    nnodes: int = 0
    comm_name: str = ""


class _Performance(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float
    coll_busbw_gbs: float


class _Statistics(msgspec.Struct):
    coll_records: int = 0


class _Line(msgspec.Struct):
    header: _Header | None = None
    coll_perf: _Performance | None = None
    dump_stats: _Statistics | None = None


_DECODER = msgspec.json.Decoder(_Line)


class CommunicatorUse(NamedTuple):
    """Collectives of one kind and size in one communicator."""

    communicator: str
    collective: str
    ranks: int
    nodes: int
    bytes: int


@dataclass(frozen=True)
class CommunicatorSpeed:
    """How fast these are: medians."""

    use: CommunicatorUse
    count: int
    seconds: float
    bus_bytes_per_second: float


@dataclass(frozen=True)
class InspectorAccount:
    """What all dumps say together."""

    speeds: tuple[CommunicatorSpeed, ...]
    """In the order of all their time."""
    lost: int
    """Lines that could not be read, or that no communicator stands before."""
    curves: tuple[Curve, ...] = ()
    """What a probe measured of all-reduces."""


def read_dumps(paths: Iterable[Path], curves: Sequence[Curve] = ()) -> InspectorAccount:
    """The account of dumps; raises UserError."""
    fastest: dict[tuple[CommunicatorUse, int], tuple[float, float]] = {}
    lost = 0
    for path in paths:
        batch = None
        left = 0
        for line in _lines(path):
            try:
                found = _DECODER.decode(line)
            except (ValueError, RecursionError):
                lost += 1
                continue
            if found.dump_stats is not None:
                batch, left = found.header, found.dump_stats.coll_records
            if (one := found.coll_perf) is None:
                continue
            header = found.header or (batch if left > 0 else None)
            left -= 1
            if header is None or one.coll_exec_time_us <= 0:
                lost += 1
                continue
            name = (
                header.id
                if header.comm_name in ("", "unknown")
                else f"{header.comm_name} {header.id}"
            )
            use = CommunicatorUse(
                printable_line(name, 60),
                printable_line(one.coll, 40),
                header.n_ranks,
                header.nnodes,
                one.coll_msg_size_bytes,
            )
            took = one.coll_exec_time_us / 1e6, one.coll_busbw_gbs * 1e9
            fastest[use, one.coll_sn] = min(took, fastest.get((use, one.coll_sn), took))
    times: dict[CommunicatorUse, list[tuple[float, float]]] = defaultdict(list)
    for (use, _), took in fastest.items():
        times[use].append(took)
    if not times:
        raise UserError(
            "no collective is in these files; NCCL's Inspector writes them with NCCL_INSPECTOR_ENABLE=1"
        )
    speeds = [
        CommunicatorSpeed(use, len(found), *(median(column) for column in zip(*found, strict=True)))
        for use, found in times.items()
    ]
    return InspectorAccount(
        tuple(sorted(speeds, key=lambda each: -each.count * each.seconds)), lost, tuple(curves)
    )


def _lines(path: Path) -> Iterator[bytes]:
    """A file's lines, those that are too long cut; raises UserError."""
    try:
        with opened_regular(path) as file:
            while line := file.readline(_LONGEST):
                if line.strip():
                    yield line
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def _probed(account: InspectorAccount, use: CommunicatorUse) -> float | None:
    """The bus bandwidth of an all-reduce of such ranks and of the nearest size by a probe."""
    sizes = [
        size
        for curve in account.curves
        if use.collective.lower() == "allreduce"
        and (curve.ranks, curve.nodes) == (use.ranks, use.nodes)
        for size in curve.sizes
        if 1 / _NEAR <= size.bytes / use.bytes <= _NEAR
    ]
    nearest = min(sizes, key=lambda size: abs(size.bytes - use.bytes), default=None)
    return None if nearest is None else nearest.bus_bytes_per_second.value


def page(account: InspectorAccount, title: str) -> Page:
    """The account as a page."""
    groups = group_by(account.speeds, lambda speed: speed.use._replace(communicator=""))
    rows: list[tuple[str, ...]] = []
    slow = []
    for use, speeds in list(groups.items())[:_MOST]:
        usual = median(each.bus_bytes_per_second for each in speeds)
        slowest = min(speeds, key=lambda each: each.bus_bytes_per_second)
        if slowest.bus_bytes_per_second < _SLOW * usual:
            slow.append(
                f"{slowest.use.communicator} has {format_rate(slowest.bus_bytes_per_second)} in {use.collective} of "
                f"{format_bytes(use.bytes)}; communicators like it have {format_rate(usual)}"
            )
        probed = _probed(account, use)
        rows.append(
            (
                use.collective,
                str(use.ranks),
                str(use.nodes or ""),
                format_bytes(use.bytes),
                str(len(speeds)),
                str(sum(each.count for each in speeds)),
                format_seconds(median(each.seconds for each in speeds)),
                format_rate(usual),
                "" if probed is None else format_rate(probed),
            )
        )
    end = None if account.curves else -1
    head = ("ranks", "nodes", "size", "groups", "count", "time", "bus", "by the probe")
    shown = tuple(row[:end] for row in rows)
    grid = Grid("", head[:end], shown, frozenset({0}), first="collective")
    verdict = f"{slow[0]}." if slow else "No communicator is slower than those like it."
    names = {each.use.communicator for each in account.speeds}
    chapters = [Chapter("speed", "Speed", grids=(grid,), brief=True)]
    if len(slow) > 1:
        chapters.insert(0, Chapter("slow", "Slow, too", points=tuple(slow[1:]), brief=True, most=5))
    lost = f"{format_count(account.lost, 'line')} could not be read."
    return Page(
        title=f"{title} | NCCL Inspector | {format_count(len(names), 'group')}",
        verdict=(verdict,),
        warnings=(lost,) if account.lost else (),
        chapters=tuple(chapters),
    )


def document(account: InspectorAccount) -> dict[str, Any]:
    """The account as JSON."""
    speeds = [
        {
            **speed.use._asdict(),
            "count": speed.count,
            "seconds": speed.seconds,
            "bus_bytes_per_second": speed.bus_bytes_per_second,
            "probed_bytes_per_second": _probed(account, speed.use),
        }
        for speed in account.speeds
    ]
    return {"schema": 1, "kind": "NCCL Inspector", "lost_lines": account.lost, "speeds": speeds}
