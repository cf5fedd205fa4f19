"""Published measurements that predictions rest on: ``collectives.csv``, ``hop_latencies.csv``, ``node_scaling.csv``.

What links reached where somebody measured, beside what their data sheet claims; and what devices of a node lost to
each other. Turns the files into records in base units, and judges nothing: ``derive.predict.target.efficiency`` does.
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


class NodeScaling(Record):
    """One model on one device and on several, of one node or of more, as somebody published it."""

    model: str
    machine: str
    gpu: str
    nodes: int
    devices: int
    """Of all nodes."""
    exchange: float
    """What the exchange between them is predicted to add to a step, as a fraction of it on one device."""
    one_per_second: Amount
    all_per_second: Amount
    as_of: str
    source: str
    notes: str = ""

    @property
    def loss(self) -> float:
        """By how much a step takes longer with all devices than its exchange explains, as a fraction of it on one."""
        return self.one_per_second * self.devices / self.all_per_second - 1 - self.exchange


@lru_cache(maxsize=1)
def node_scaling() -> tuple[NodeScaling, ...]:
    """Every published pair, in the file's order."""
    return tuple(
        NodeScaling(
            model=row["model"],
            machine=row["machine"],
            gpu=row["gpu"],
            nodes=int(row["nodes"]),
            devices=int(row["devices"]),
            exchange=float(row["exchange"]),
            one_per_second=float(row["one_per_s"]),
            all_per_second=float(row["all_per_s"]),
            as_of=row["as_of"],
            source=row["source"],
            notes=row["notes"],
        )
        for row in rows("node_scaling.csv")
    )
