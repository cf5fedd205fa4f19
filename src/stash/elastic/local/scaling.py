"""A plan's fleet, made so much slower that this machine can play it: what its links carry, how long steps take.

Everything is slowed by one factor, and bytes are those of the job that is really trained, so that whatever waits for
whatever in the plan does so in the rehearsal. Pure: a pool in, numbers out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stash.base.errors import UserError
from stash.base.spot.fleets import FleetPool
from stash.base.words.units import format_bytes

FACTORS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_BUSY = 0.5
"""Of this machine's cores, that computing may take: the rest is for exchanging, and for being in time."""
_BYTES_PER_SECOND = 100e6
"""That two cores move between emulated hosts without being late, both ways together; measured where 250e6 pass."""
_LEAST_RATE = 20e3
"""Bytes per second of a link. Below, Ray's own messages are late and its machines count as gone, as seen at 440."""


@dataclass(frozen=True)
class EmulatedFleet:
    """What to emulate."""

    slower: float
    worker_rate: float
    """Bytes per second of a worker's link, each way."""
    server_rate: float
    apply_seconds: float
    """That one update keeps one server busy."""
    pace: dict[str, float]
    """By type: seconds of an iteration without its exchange."""


def emulated(pool: FleetPool, exchange_bytes: float, slower: float) -> EmulatedFleet:
    """The pool's machines for a job of so many bytes; raises UserError if the pool contradicts itself."""
    server = pool.server
    ratio = exchange_bytes / pool.exchange_bytes / slower
    apply = server.apply_seconds / server.count / server.cores
    link = max(
        pool.exchange_bytes / pool.worker_bytes_per_second,
        pool.exchange_bytes / server.count / server.bytes_per_second,
    )
    pace = {kind.name: kind.lone_seconds - 2 * link - apply for kind in pool.types}
    wrong = next((name for name, seconds in pace.items() if seconds <= 0), None)
    if wrong is not None:
        raise UserError(
            f"the plan's pool says that {wrong} takes less time for an iteration than for its exchange alone: one of "
            "samples_per_second, exchange_bytes and worker_bytes_per_second is wrong; measure them, and plan again"
        )
    rate = min(pool.worker_bytes_per_second, server.bytes_per_second) * ratio
    if rate < _LEAST_RATE:
        least = format_bytes(exchange_bytes * _LEAST_RATE / rate)
        raise UserError(
            f"the job's {format_bytes(exchange_bytes)} an update stand for the plan's "
            f"{format_bytes(pool.exchange_bytes)}, so a link would have to carry {format_bytes(rate)}/s, less than "
            f"what keeps machines together; rehearse it with a model of {least} at least, or --on local"
        )
    return EmulatedFleet(
        slower=slower,
        worker_rate=pool.worker_bytes_per_second * ratio,
        server_rate=server.bytes_per_second * ratio,
        apply_seconds=apply * slower,
        pace={name: seconds * slower for name, seconds in pace.items()},
    )


def least_slower(
    pool: FleetPool,
    workers: Mapping[str, int],
    updates_per_second: float,
    exchange_bytes: float,
    sample_seconds: float,
    cores: int,
) -> int:
    """The smallest of ``FACTORS`` at which this machine keeps up; raises UserError if none is enough.

    ``sample_seconds``: processor time of one sample's gradient here; ``updates_per_second`` as planned.
    """
    kinds = [kind for kind in pool.types if workers.get(kind.name)]
    load = sum(workers[kind.name] * kind.samples / kind.lone_seconds for kind in kinds) * sample_seconds
    for factor in FACTORS:
        pace = emulated(pool, exchange_bytes, factor).pace
        in_time = all(kind.samples * sample_seconds < _BUSY * pace[kind.name] for kind in kinds)
        moved = 2 * exchange_bytes * updates_per_second / factor
        if in_time and load / factor <= _BUSY * cores and moved <= _BYTES_PER_SECOND:
            return factor
    raise UserError(
        f"this machine would need more than {FACTORS[-1]} times as long as the plan's fleet to train the job; "
        "rehearse it with a smaller model or batch"
    )


@dataclass(frozen=True)
class EmulatedLinks:
    """Links of a fleet whose script is its own: nothing else of it can be slowed, as nobody else times its steps."""

    slower: float
    node_rate: float
    """Bytes per second of a node's link, each way."""
    head_rate: float
    """Of the head's, which only sees to it that nodes meet."""


def emulated_links(pool: FleetPool, nodes: int, slower: float | None) -> EmulatedLinks:
    """The pool's links, ``slower`` times slower, or else so much that this machine moves what all nodes can send.

    The script is taken for the job that the pool is of, so bytes are not scaled. Raises UserError for links that
    would not keep nodes together.
    """
    if slower is None:
        factors = (each for each in FACTORS if nodes * pool.worker_bytes_per_second / each <= _BYTES_PER_SECOND)
        slower = next(factors, FACTORS[-1])
    rate = pool.worker_bytes_per_second / slower
    if rate < _LEAST_RATE:
        raise UserError(
            f"a link of the plan's {format_bytes(pool.worker_bytes_per_second)}/s, {slower:g} times slower, would "
            f"carry {format_bytes(rate)}/s, less than what keeps machines together; give --slower "
            f"{pool.worker_bytes_per_second / _LEAST_RATE:.3g} at most, or --on local"
        )
    return EmulatedLinks(slower, rate, pool.server.bytes_per_second / slower)
