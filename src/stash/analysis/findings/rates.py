"""Raw repetitions of a probe turned into rates with intervals: links, all-reduce curves, disks that burst; a
finding.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from stash.catalog.facts import GpuFacts, Instance
from stash.core.formatting import Unit
from stash.core.intervals import Interval, median_interval, overall_interval
from stash.core.records.base import Record
from stash.core.records.host import Copy, DiskRead, Exchange, Host, Preparation, Stream, Timing

# Finding ---------------------------------------------------------------------------------------------------
# What a finding is: one plain sentence about a machine, with the measurement and the fact behind it.
#
# Records only; which findings there are, and when one is justified, is decided by the modules beside this one.


class Fact(Record):
    """What a machine should have, and who says so."""

    value: float
    unit: Unit
    about: str
    """What it is a fact about, e.g. ``network of p3.8xlarge``."""
    as_of: str | None = None
    """ISO date; ``None`` for what the machine itself claims."""
    source: str = "the machine itself"


class Finding(Record):
    """One sentence worth reading, and what it rests on."""

    name: str
    """Which kind it is, e.g. ``slow-pairs``; ``docs/probe.md`` lists them all."""
    hostname: str | None = None
    """``None`` when it is about several machines."""
    text: str
    unit: Unit | None = None
    """Of ``measured``."""
    measured: Interval | None = None
    fact: Fact | None = None


def unlike(fact: Fact, measured: Interval, name: str, text: str, host: Host | None = None) -> Finding:
    """The finding that ``measured`` is not what ``fact`` says; about ``host``, or about several machines."""
    hostname = None if host is None else host.hostname
    return Finding(name=name, hostname=hostname, text=text, unit=fact.unit, measured=measured, fact=fact)


def fact_of(item: Instance | GpuFacts, about: str, value: float | None, unit: Unit) -> Fact | None:
    """The catalog's ``value`` as a fact with its date and source; ``None`` where the catalog is silent."""
    if value is None:
        return None
    return Fact(value=value, unit=unit, about=f"{about} of {item.name}", as_of=item.as_of, source=item.source)


def origin(fact: Fact) -> str:
    """``"(catalog of 2026-11-20: EC2 user guide)"``, to stand behind a fact."""
    return f"({fact.source})" if fact.as_of is None else f"(catalog of {fact.as_of}: {fact.source})"


# Rates -----------------------------------------------------------------------------------------------------
# Raw repetitions turned into rates: every measured link of a host, with its interval.
#
# Knows which repetitions belong together: the largest messages of a copy, all spells of a stream or of a disk.
# Judges nothing; all-reduce has a module of its own, because it is a curve and not a rate.


class Link(Record):
    """One measured link and its rate."""

    hostname: str
    node: int
    """Position of the host in the probe."""
    part: str
    """``copies``, ``streams``, ``reads`` or ``preparation``."""
    group: str
    """What it shares with its like, e.g. ``host to GPU``."""
    member: str
    """Which one of the group, e.g. ``GPU 3``; empty in a group of one."""
    unit: Unit
    rate: Interval


def repeated(timings: Iterable[Timing]) -> list[float]:
    """Bytes per second of every repetition, in the order in which they were taken."""
    return [timing.bytes / seconds for timing in timings for seconds in timing.seconds if seconds > 0]


def _interval(rates: list[float]) -> Interval | None:
    return median_interval(rates) if rates else None


def copy_rate(copy: Copy) -> Interval | None:
    """Bytes per second of the largest copies: small ones measure the call."""
    largest = max((timing.bytes for timing in copy.timings), default=0)
    return _interval(repeated(timing for timing in copy.timings if timing.bytes == largest))


def stream_rate(stream: Stream) -> Interval | None:
    """Bytes per second of all flows together."""
    return _interval(repeated(stream.timings))


def read_rate(read: DiskRead) -> Interval | None:
    """Bytes per second of all readers together: of a disk over the whole run, of the page cache the usual one."""
    rates = repeated(read.timings)
    if not rates:
        return None
    return overall_interval(rates) if read.cold or read.direct else median_interval(rates)


def preparation_rate(made: Preparation) -> Interval | None:
    """Samples per second of all processes together."""
    return _interval([made.samples / seconds for seconds in made.seconds if seconds > 0])


def links(host: Host, node: int = 0) -> tuple[Link, ...]:
    """Every link of one host that was measured, in the order of its records."""
    if host.links is None:
        return ()
    measured: list[tuple[str, tuple[str, str], Interval | None, Unit]] = [
        *(("copies", _copy_name(copy), copy_rate(copy), "bytes/s") for copy in host.links.copies),
        *(("streams", _stream_name(stream), stream_rate(stream), "bytes/s") for stream in host.links.streams),
        *(("reads", (_read_name(read), ""), read_rate(read), "bytes/s") for read in host.links.reads),
        *(
            ("preparation", (_preparation_name(made), ""), preparation_rate(made), "samples/s")
            for made in host.links.preparation
        ),
    ]
    return tuple(
        Link(hostname=host.hostname, node=node, part=part, group=group, member=member, rate=rate, unit=unit)
        for part, (group, member), rate, unit in measured
        if rate is not None
    )


def gpu_index(device: str) -> int | None:
    """3 for ``cuda:3``; ``None`` for the host."""
    kind, _, index = device.partition(":")
    return int(index) if kind == "cuda" and index.isdecimal() else None


def _copy_name(copy: Copy) -> tuple[str, str]:
    how = [text for text, holds in (("pageable", copy.pinned is False), ("all at once", copy.together)) if holds]
    suffix = "".join(f", {text}" for text in how)
    source, target = gpu_index(copy.source), gpu_index(copy.target)
    if source is None and target is None:
        return "host memory" + suffix, ""
    if source is None:
        return "host to GPU" + suffix, f"GPU {target}"
    if target is None:
        return "GPU to host" + suffix, f"GPU {source}"
    return "GPU to GPU" + suffix, f"{source} to {target}"


def _stream_name(stream: Stream) -> tuple[str, str]:
    flows = "1 flow" if stream.flows == 1 else f"{stream.flows} flows"
    return f"TCP, {flows}", f"node {stream.source} to {stream.target}"


def _read_name(read: DiskRead) -> str:
    where = "direct" if read.direct else "cold" if read.cold else "page cache"
    readers = "" if read.readers == 1 else f", {read.readers} readers"
    return f"{read.pattern} reads, {where}{readers}"


def _preparation_name(made: Preparation) -> str:
    return f"{made.kind}, {made.processes} process{'' if made.processes == 1 else 'es'}"


# Allreduce -------------------------------------------------------------------------------------------------
# All-reduce as a curve: algorithm and bus bandwidth of each size, and the two-parameter model behind them.
#
# The model is the ring's, t(n) = 2(p−1)·α + 2(p−1)/p · n/β (docs/method.md): latency α of one hop and bandwidth β
# of one link. Knows when a curve is not of that form and says so; knows nothing of what a machine should reach.

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
    """One all-reduce from small messages to large ones."""

    backend: str
    nodes: int
    ranks: int
    hostname: str
    sizes: tuple[Size, ...]
    fit: RingFit | None = None
    """``None`` with fewer than three sizes, or where time does not grow with size."""


def curve(exchange: Exchange, hostname: str) -> Curve:
    """The curve of one measured exchange."""
    sizes = _sizes(exchange)
    return Curve(
        backend=exchange.backend,
        nodes=exchange.nodes,
        ranks=exchange.ranks,
        hostname=hostname,
        sizes=sizes,
        fit=fit(sizes, exchange.ranks),
    )


def bus_factor(ranks: int) -> float:
    """Bytes that each link of a ring carries for every byte reduced: 2(p−1)/p."""
    return 2 * (ranks - 1) / ranks


def _sizes(exchange: Exchange) -> tuple[Size, ...]:
    found = []
    for timing in sorted(exchange.timings, key=lambda timing: timing.bytes):
        seconds = [value for value in timing.seconds if value > 0]
        if not seconds:
            continue
        algorithm = median_interval([timing.bytes / value for value in seconds])
        found.append(
            Size(
                bytes=timing.bytes,
                seconds=median_interval(seconds),
                algorithm_bytes_per_second=algorithm,
                bus_bytes_per_second=algorithm.scaled(bus_factor(exchange.ranks) if exchange.ranks > 1 else 1.0),
            )
        )
    return tuple(found)


def fit(sizes: tuple[Size, ...], ranks: int) -> RingFit | None:
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
    errors = np.sqrt(np.diag(np.linalg.inv((design / scale).T @ (design / scale))) * variance) / scale
    start, slope = (float(value) for value in solution / scale)
    if slope <= 0:
        return None
    hops, bandwidth = 2 * (ranks - 1), bus_factor(ranks) / slope
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


# Burst -----------------------------------------------------------------------------------------------------
# Whether reading a disk became slower for good: volumes that carry a burst and then only what was paid for.
#
# Looks at one record's repetitions in the order in which they were taken. What the page cache answered says nothing
# about a disk and is left alone.

_SLOWER = 1.5
_FEWEST = 3
"""Repetitions on each side of the change."""


class Burst(NamedTuple):
    """Rates in bytes per second before and after, and how long the burst lasted."""

    seconds: float
    first: Interval
    later: Interval


def burst(read: DiskRead) -> Burst | None:
    """The burst that ended while reading, if one did.

    Every repetition before its end must be faster than every one after, and the two rates ``_SLOWER`` times apart,
    with intervals that do not touch.
    """
    if not (read.cold or read.direct):
        return None
    spells = [(t.bytes / seconds, seconds) for t in read.timings for seconds in t.seconds if seconds > 0]
    rates = [rate for rate, _ in spells]
    slowest_before, fastest_after = [*accumulate(rates, min)], [*accumulate(reversed(rates), max)][::-1]
    gaps = {cut: slowest_before[cut - 1] / fastest_after[cut] for cut in range(_FEWEST, len(spells) - _FEWEST + 1)}
    if not gaps or max(gaps.values()) <= 1:
        return None
    end = max(gaps, key=lambda cut: gaps[cut])
    first, later = (overall_interval([rate for rate, _ in part]) for part in (spells[:end], spells[end:]))
    if not later.slower_than(first, _SLOWER):
        return None
    return Burst(sum(seconds for _, seconds in spells[:end]), first, later)


def sustained_rate(read: DiskRead) -> Interval | None:
    """Bytes per second once a burst is over, or of all repetitions where none ended."""
    end = burst(read)
    return read_rate(read) if end is None else end.later
