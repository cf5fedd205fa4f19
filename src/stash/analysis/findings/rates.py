"""Raw repetitions of a probe turned into rates with intervals: links, all-reduce curves, disks that burst.

Knows which repetitions belong together: the largest messages of a copy, all spells of a stream or of a disk. Judges
nothing; knows nothing of what a machine should reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from stash.core.formatting import Unit
from stash.core.intervals import Interval, median_interval, overall_interval
from stash.core.records.base import Record
from stash.core.records.host import Copy, DiskRead, Exchange, Host, Links, PartFigure, Timing
from stash.core.units import format_count

# Links

_CPU_MESSAGE = 16 << 20


class Link(Record):
    """One measured link and its rate."""

    hostname: str
    node: int
    """Position of the host in the probe."""
    part: str
    """``compute``, ``copies``, ``streams`` or ``reads``."""
    group: str
    """What it shares with its like, e.g. ``host to GPU``."""
    member: str
    """Which one of the group, e.g. ``GPU 3``; empty in a group of one."""
    unit: Unit
    rate: Interval
    sustained: float | None = None
    """Over all of its time, what disturbed it included, in the same unit."""
    own: float | None = None
    """For each second that it had of a core: what other programs take of the cores does not count."""


def rate_of(timings: Iterable[Timing]) -> Interval | None:
    """The median of the bytes per second of every repetition; ``None`` if none took any time."""
    rates = _repetition_rates(timings)
    return median_interval(rates) if rates else None


def _repetition_rates(timings: Iterable[Timing]) -> list[float]:
    """Bytes per second of every repetition, in the order in which they were taken."""
    return [
        timing.bytes / seconds for timing in timings for seconds in timing.seconds if seconds > 0
    ]


def copy_rate(copy: Copy) -> Interval | None:
    """Bytes per second of the largest copies: small ones measure the call."""
    largest = max((timing.bytes for timing in copy.timings), default=0)
    return rate_of(timing for timing in copy.timings if timing.bytes == largest)


def read_rate(read: DiskRead) -> Interval | None:
    """Bytes per second of all readers together: of a disk over the whole run, of the page cache the usual one."""
    rates = _repetition_rates(read.timings)
    if not rates:
        return None
    return overall_interval(rates) if read.cold or read.direct else median_interval(rates)


def burst_rates(figure: PartFigure) -> list[float]:
    """Work per second of each burst: over all of it, so that a core taken for half of the time counts as half."""
    return [figure.work * len(burst) / sum(burst) for burst in figure.bursts if sum(burst) > 0]


def exchange_rate(exchange: Exchange) -> tuple[int, Interval] | None:
    """The message that stands for one all-reduce, in bytes, and its bus bandwidth: the upper quartile.

    Of GPUs the largest one that was measured; on CPUs 16 MiB, since how far a sweep gets depends on who disturbs it.
    """
    fits = (t for t in exchange.timings if exchange.backend == "nccl" or t.bytes <= _CPU_MESSAGE)
    timing = max(fits, key=lambda timing: timing.bytes, default=None)
    rates = _repetition_rates([timing]) if timing is not None else []
    if timing is None or not rates:
        return None
    found = _of_faster_half(rates, float(np.quantile(rates, 0.75)))
    found = found.model_copy(update={"repetitions": len(rates)})
    return timing.bytes, found.scale(bus_factor(exchange.ranks) if exchange.ranks > 1 else 1.0)


def _of_faster_half(rates: Sequence[float], value: float) -> Interval:
    """``value``, with the interval of the median of the faster half, which holds it."""
    half = median_interval(sorted(rates, reverse=True)[: max(3, len(rates) // 2)])
    low = None if half.low is None else min(half.low, value)
    high = None if half.high is None else max(half.high, value)
    return half.model_copy(update={"value": value, "low": low, "high": high})


def figure_rate(figure: PartFigure) -> Interval | None:
    """The second fastest burst, so that neither bursts that something disturbed count nor one lucky one.

    Of three bursts that is the median. The interval is that of the median of the faster half.
    """
    rates = burst_rates(figure)
    if len(rates) < 3:
        return median_interval(rates) if rates else None
    return _of_faster_half(rates, sorted(rates)[-2])


def sustained_figure(figure: PartFigure) -> float | None:
    """Work per second of all bursts together."""
    spent = sum(sum(burst) for burst in figure.bursts)
    return figure.work * sum(map(len, figure.bursts)) / spent if spent > 0 else None


def own_rate(figure: PartFigure) -> float | None:
    """The second fastest burst by the time that the cores gave it; ``None`` where that is unknown."""
    spent = [
        (len(burst), seconds)
        for burst, seconds in zip(figure.bursts, figure.cpu_seconds, strict=False)
    ]
    rates = sorted(
        (figure.work * count / seconds for count, seconds in spent if seconds > 0), reverse=True
    )
    return rates[min(1, len(rates) - 1)] if rates else None


def list_links(host: Host, node: int = 0) -> tuple[Link, ...]:
    """Every link of one host that was measured, in the order of its records."""
    links = () if host.links is None else _links_of(host.hostname, node, host.links)
    return tuple(link for link in links if link is not None)


def _links_of(hostname: str, node: int, links: Links) -> Iterator[Link | None]:
    def link(
        part: str, group: str, rate: Interval | None, member: str = "", **more: Any
    ) -> Link | None:
        names = {"hostname": hostname, "node": node, "part": part, "group": group, "member": member}
        return None if rate is None else Link(**{"unit": "bytes/s", **names, **more}, rate=rate)

    for figure in links.figures:
        number = gpu_index(figure.device)
        yield link(
            "compute",
            figure.name + (", all at once" if figure.together else ""),
            figure_rate(figure),
            "" if number is None else f"GPU {number}",
            unit=figure.unit,
            sustained=sustained_figure(figure),
            own=own_rate(figure),
        )
    for copy in links.copies:
        source, target = gpu_index(copy.source), gpu_index(copy.target)
        group, member = {
            (True, True): ("host memory", ""),
            (True, False): ("host to GPU", f"GPU {target}"),
            (False, True): ("GPU to host", f"GPU {source}"),
            (False, False): ("GPU to GPU", f"{source} to {target}"),
        }[source is None, target is None]
        group += ", pageable" if copy.pinned is False else ""
        group += ", all at once" if copy.together else ""
        yield link("copies", group, copy_rate(copy), member)
    for stream in links.streams:
        between = f"node {stream.source} to {stream.target}"
        group = f"TCP, {format_count(stream.flows, 'flow')}"
        yield link("streams", group, rate_of(stream.timings), between)
    for read in links.reads:
        where = "cold" if read.cold else "page cache"
        where = "direct" if read.direct else where
        readers = "" if read.readers == 1 else f", {read.readers} readers"
        yield link("reads", f"{read.pattern} reads, {where}{readers}", read_rate(read))


def gpu_index(device: str) -> int | None:
    """3 for ``cuda:3``; ``None`` for the host."""
    kind, _, index = device.partition(":")
    return int(index) if kind == "cuda" and index.isdecimal() else None


# All-reduce

TOO_FAR = 0.30
"""Largest relative residual up to which a curve counts as α–β; libraries that switch protocols exceed it."""


class Size(Record):
    """One message size. Bandwidths as nccl-tests define them: algorithm n/t, bus n/t · 2(p−1)/p."""

    bytes: int
    seconds: Interval
    algorithm_bytes_per_second: Interval
    bus_bytes_per_second: Interval


class RingFit(Record):
    """The two parameters with their standard errors, and how well they describe the curve."""

    alpha_seconds: float
    """Per hop. May come out negative where small messages are too noisy to show a latency."""
    alpha_error: float
    bytes_per_second: float
    bytes_per_second_error: float
    relative_error: float
    """Root mean square of the relative residuals."""
    worst_relative_residual: float
    worst_bytes: int
    """The size that is described worst."""
    is_alpha_beta: bool


class Curve(Record):
    """One all-reduce from small messages to large ones, and the ring's model of it where it is of that form.

    The model is t(n) = 2(p−1)·α + 2(p−1)/p · n/β (docs/forecasts.md): latency α of a hop, bandwidth β of a link.
    """

    backend: str
    nodes: int
    ranks: int
    hostname: str
    sizes: tuple[Size, ...]
    fit: RingFit | None = None
    """``None`` with fewer than three sizes, or where time does not grow with size."""


def make_curve(exchange: Exchange, hostname: str) -> Curve:
    """The curve of one measured exchange."""
    sizes = []
    for timing in sorted(exchange.timings, key=lambda timing: timing.bytes):
        seconds = [value for value in timing.seconds if value > 0]
        if not seconds:
            continue
        algorithm = median_interval([timing.bytes / value for value in seconds])
        sizes.append(
            Size(
                bytes=timing.bytes,
                seconds=median_interval(seconds),
                algorithm_bytes_per_second=algorithm,
                bus_bytes_per_second=algorithm.scale(
                    bus_factor(exchange.ranks) if exchange.ranks > 1 else 1.0
                ),
            )
        )
    return Curve(
        backend=exchange.backend,
        nodes=exchange.nodes,
        ranks=exchange.ranks,
        hostname=hostname,
        sizes=tuple(sizes),
        fit=fit_ring(tuple(sizes), exchange.ranks),
    )


def bus_factor(ranks: int) -> float:
    """Bytes that each link of a ring carries for every byte reduced: 2(p−1)/p."""
    return 2 * (ranks - 1) / ranks


_BUS: dict[str, Callable[[int], float]] = {
    "allreduce": bus_factor,
    "reducescatter": lambda ranks: (ranks - 1) / ranks,
    "allgather": lambda ranks: ranks - 1.0,
    "alltoall": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
}
"""Bytes on the bus for each byte that a rank puts in, as nccl-tests counts them."""


def bus_bytes(op: str, ranks: int, size: int | None) -> float | None:
    """Bytes that a collective puts on the bus where each rank puts in ``size``; ``None`` where that is unknown."""
    factor = _BUS.get(op.replace("_", ""))
    return None if factor is None or not size or ranks < 2 else size * factor(ranks)


def fit_ring(sizes: tuple[Size, ...], ranks: int) -> RingFit | None:
    """Least squares over the sizes' median times, each residual relative to its time.

    Relative, so that a microsecond of a small message counts as much as a millisecond of a large one. Standard
    errors are the regression's (from the residuals, sizes − 2 degrees of freedom).
    """
    if len(sizes) < 3 or ranks < 2:
        return None
    count = np.array([size.bytes for size in sizes], dtype=np.float64)
    times = np.array([size.seconds.value for size in sizes])
    design = np.column_stack([1 / times, count / times])
    # Scaled columns: seconds and seconds per byte differ by many powers of ten.
    scale = np.linalg.norm(design, axis=0)
    solution, _, rank, _ = np.linalg.lstsq(design / scale, np.ones_like(times), rcond=None)
    if rank < 2:
        return None
    residuals = design / scale @ solution - 1
    variance = float(residuals @ residuals) / (len(sizes) - 2)
    errors = (
        np.sqrt(np.diag(np.linalg.inv((design / scale).T @ (design / scale))) * variance) / scale
    )
    start, slope = (float(value) for value in solution / scale)
    if slope <= 0:
        return None
    hops = 2 * (ranks - 1)
    bandwidth = bus_factor(ranks) / slope
    worst = int(np.argmax(np.abs(residuals)))
    return RingFit(
        alpha_seconds=start / hops,
        alpha_error=float(errors[0]) / hops,
        bytes_per_second=bandwidth,
        bytes_per_second_error=bandwidth * float(errors[1]) / slope,
        relative_error=math.sqrt(float(residuals @ residuals) / len(sizes)),
        worst_relative_residual=float(abs(residuals[worst])),
        worst_bytes=sizes[worst].bytes,
        is_alpha_beta=bool(abs(residuals[worst]) <= TOO_FAR),
    )


# Disks that burst

_SLOWER = 1.5
_FEWEST = 3
"""Repetitions on each side of the change."""


class Burst(NamedTuple):
    """Rates in bytes per second before and after, and how long the burst lasted."""

    seconds: float
    first: Interval
    later: Interval


def find_burst(read: DiskRead) -> Burst | None:
    """The burst that ended while reading, if one did: volumes that carry a burst and then only what was paid for.

    Every repetition before its end must be faster than every one after, and the two rates ``_SLOWER`` times apart,
    with intervals that do not touch. What the page cache answered says nothing about a disk.
    """
    if not (read.cold or read.direct):
        return None
    spells = [
        (t.bytes / seconds, seconds) for t in read.timings for seconds in t.seconds if seconds > 0
    ]
    rates = [rate for rate, _ in spells]
    slowest_before = [*accumulate(rates, min)]
    fastest_after = [*accumulate(reversed(rates), max)][::-1]
    gaps = {
        cut: slowest_before[cut - 1] / fastest_after[cut]
        for cut in range(_FEWEST, len(spells) - _FEWEST + 1)
    }
    if not gaps or max(gaps.values()) <= 1:
        return None
    end = max(gaps, key=lambda cut: gaps[cut])
    first, later = (
        overall_interval([rate for rate, _ in part]) for part in (spells[:end], spells[end:])
    )
    if not later.slower_than(first, _SLOWER):
        return None
    return Burst(sum(seconds for _, seconds in spells[:end]), first, later)


def sustained_rate(read: DiskRead) -> Interval | None:
    """Bytes per second once a burst is over, or of all repetitions where none ended."""
    end = find_burst(read)
    return read_rate(read) if end is None else end.later
