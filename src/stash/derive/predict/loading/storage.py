"""What a target's storage is to one training: the rate it serves while that lasts, and what one request costs.

Network disks of small instances are fast until their credits are spent and slow from then on; a forecast has to say
which of the two it is about. Object stores take a while to answer each request. Knows a target's facts and nothing of
samples or of what waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.base.words.units import format_rate, format_seconds
from stash.derive.predict.loading.pipeline import SampleStore
from stash.derive.predict.target.cluster import Storage
from stash.derive.predict.uncertainty.draws import Draws
from stash.derive.predict.uncertainty.quantity import Quantity, Used


@dataclass(frozen=True, eq=False)
class NodeStorage:
    """A node's storage as loaders find it, and what that rests on."""

    store: SampleStore
    facts: tuple[Used, ...]
    beyond: tuple[str, ...] = ()


def served(storage: Storage, lasting: float | None, draws: Draws) -> NodeStorage | None:
    """What ``storage`` serves to a training of so many seconds; ``None`` where nobody knows any rate of it."""
    rate, beyond = _rate(storage, lasting)
    if rate is None:
        return None
    reads, latency, stream = storage.reads_per_second, storage.latency_seconds, storage.stream_bytes_per_second
    store = SampleStore(
        draws.of("storage", rate),
        None if reads is None else draws.of("requests of storage", reads),
        0.0 if latency is None else draws.of("latency of storage", latency),
        None if stream is None else draws.of("one stream of storage", stream),
    )
    known = (
        ("a node's storage", "bytes/s", rate),
        ("requests of a node's storage", "1/s", reads),
        ("latency of a request to storage", "seconds", latency),
        ("one request's stream", "bytes/s", stream),
    )
    facts = tuple(Used(about=about, unit=unit, quantity=told) for about, unit, told in known if told is not None)
    return NodeStorage(store, facts, beyond)


def _rate(storage: Storage, lasting: float | None) -> tuple[Quantity | None, tuple[str, ...]]:
    """The mean over the training: what it sustains, and more while a burst lasts."""
    base, burst, burst_for = storage.bytes_per_second, storage.burst_bytes_per_second, storage.burst_seconds
    if burst is None or (base is not None and burst.value <= base.value):
        return base, ()
    at_first = format_rate(burst.value)
    if base is None:
        return burst, (f"storage does {at_first} in bursts, which is taken; what it sustains nobody published",)
    if burst_for is None:
        return base, (f"storage does {at_first} at first, nobody says for how long; what it sustains is taken",)
    if lasting is None:
        spent = f"storage does {at_first} for {format_seconds(burst_for.value)}, then {format_rate(base.value)}"
        return base, (f"{spent}, which is taken; say how long training lasts with --lasting",)
    share = min(1.0, burst_for.value / lasting)
    mean = base.scaled(1 + share * (burst.value / base.value - 1), "scaled", f"{burst.source}, over the training")
    if share == 1.0:
        return mean, ()
    return mean, (
        f"training outlasts the credit of its storage: {format_seconds(burst_for.value)} at {at_first}, "
        f"{format_rate(base.value)} from then on; the mean is taken",
    )
