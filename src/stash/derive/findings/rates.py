"""Raw repetitions turned into rates: every measured link of a host, with its interval.

Knows which repetitions belong together: the largest messages of a copy, all spells of a stream or of a disk.
Judges nothing; all-reduce has a module of its own, because it is a curve and not a rate.
"""

from __future__ import annotations

from collections.abc import Iterable

from stash.base.records import Copy, DiskRead, Host, Preparation, Record, Stream, Timing
from stash.base.stats.intervals import Interval, median_interval, overall_interval
from stash.base.words.quantities import Unit


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
