"""Published measurements of collectives and of their latencies: ``data/collectives.csv``, ``data/hop_latencies.csv``.

What links reached where somebody measured, beside what their data sheet claims. Turns the files into records in base
units, and judges nothing: what follows for other machines, ``derive.predict.efficiency`` says.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from stash.base.records import Record
from stash.keep.catalog.facts import Amount
from stash.keep.catalog.shipped import GB, rows

MICROSECOND = 1e-6


class CollectiveRate(Record):
    """One all-reduce that somebody published."""

    scope: Literal["inside", "between"]
    """A node's devices, or several nodes."""
    link: str
    """``nvswitch``, ``nvlink``, ``pcie``; ``efa``, ``infiniband``, ``tcp``."""
    gpu: str
    nodes: int
    ranks: int
    algorithm: str | None = None
    """``ring`` or ``tree``, where the source says so."""
    claimed_bytes_per_second: Amount
    """By the data sheet, one direction: of a device's links inside a node, of all of a node's interfaces between."""
    message_bytes: Amount | None = None
    """``None``: large, says the source."""
    bus_bytes_per_second: Amount
    """As nccl-tests defines it."""
    published: str
    as_of: str
    """When it was looked up."""
    source: str
    notes: str = ""


class HopLatency(Record):
    """What a library's authors reckon with for one hop."""

    library: str
    link: str
    """``nvlink``, ``pcie`` or ``network``."""
    algorithm: str
    start_seconds: Amount
    hop_seconds: Amount
    as_of: str
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def collective_rates() -> tuple[CollectiveRate, ...]:
    """Every published measurement, in the file's order."""
    return tuple(
        CollectiveRate(
            scope=row["scope"],
            link=row["link"],
            gpu=row["gpu"],
            nodes=int(row["nodes"]),
            ranks=int(row["ranks"]),
            algorithm=row["algorithm"] or None,
            claimed_bytes_per_second=float(row["claimed_gbyte_per_s"]) * GB,
            message_bytes=float(row["message_bytes"]) if row["message_bytes"] else None,
            bus_bytes_per_second=float(row["busbw_gbyte_per_s"]) * GB,
            published=row["published"],
            as_of=row["as_of"],
            source=row["source"],
            notes=row["notes"],
        )
        for row in rows("collectives.csv")
    )


@lru_cache(maxsize=1)
def hop_latencies() -> tuple[HopLatency, ...]:
    """Every published latency of a hop, in the file's order."""
    return tuple(
        HopLatency(
            library=row["library"],
            link=row["link"],
            algorithm=row["algorithm"],
            start_seconds=float(row["start_us"]) * MICROSECOND,
            hop_seconds=float(row["hop_us"]) * MICROSECOND,
            as_of=row["as_of"],
            source=row["source"],
            notes=row["notes"],
        )
        for row in rows("hop_latencies.csv")
    )
