"""What was measured beside what the machine's type should have, line by line.

One row for every quantity that either side knows; what one of them does not know is ``None``, never zero. Says
nothing of whether a ratio is good: ``shortfall`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stash.base.records import Host, Record
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import Unit
from stash.derive.findings.allreduce import Curve, curve
from stash.derive.findings.burst import sustained_rate
from stash.derive.findings.inside import host_copies, pair_copies
from stash.derive.findings.machine import exactly, working
from stash.derive.findings.network import Reach, reach
from stash.keep.catalog import Instance


class Compared(Record):
    """One quantity of a machine: measured, and as the catalog has it."""

    name: str
    unit: Unit
    measured: Interval | None
    catalog: float | None
    catalog_is: str = ""
    """What the catalog's figure is where it is not quite the same thing, e.g. ``theory``."""
    network: bool = False
    """Written in bits per second."""

    @property
    def ratio(self) -> float | None:
        """Measured over catalog; ``None`` if either is unknown."""
        if self.measured is None or not self.catalog:
            return None
        return self.measured.value / self.catalog


class Comparison(Record):
    """One machine beside one instance type."""

    hostname: str
    instance: str
    cloud: str
    as_of: str
    source: str
    notes: str
    gpus_measured: str | None
    """E.g. ``4 × Tesla V100-SXM2-16GB``."""
    gpus_catalog: str | None
    rows: tuple[Compared, ...]


@dataclass(frozen=True)
class Measured:
    """The best that each kind of link of one machine was measured to do; ``None`` where it was not measured."""

    host_to_gpu: Interval | None
    slowest_pair: Interval | None
    fastest_pair: Interval | None
    bus_inside: Interval | None
    """Bus bandwidth of the largest all-reduce among the GPUs of this machine."""
    bus_across: Interval | None
    """The same across machines."""
    network: Reach | None
    disk: Interval | None
    """Sequential, past the page cache, at the end of reading: a burst is over by then, if it ends at all."""


def measured(hosts: Sequence[Host], node: int) -> Measured:
    """The figures of ``hosts[node]``."""
    links = hosts[node].links
    alone = host_copies(links, "host to GPU", together=False).values() if links else ()
    pairs = pair_copies(links).values() if links else ()
    curves = [curve(exchange, hosts[node].hostname) for exchange in (links.exchanges if links else ())]
    gpus = [item for item in curves if item.backend == "nccl" and item.sizes]
    reads = [
        rate
        for read in (links.reads if links else ())
        if read.pattern == "sequential" and (read.cold or read.direct) and (rate := sustained_rate(read)) is not None
    ]
    return Measured(
        host_to_gpu=_most(alone, min),
        slowest_pair=_most(pairs, min),
        fastest_pair=_most(pairs, max),
        bus_inside=_largest([item for item in gpus if item.nodes == 1]),
        bus_across=_largest([item for item in curves if item.nodes > 1 and item.sizes]),
        network=reach(hosts),
        disk=_most(reads, max),
    )


def compare(hosts: Sequence[Host], node: int, reference: Instance) -> Comparison:
    """``hosts[node]`` beside the instance type ``reference``."""
    host = hosts[node]
    return Comparison(
        hostname=host.hostname,
        instance=reference.name,
        cloud=reference.cloud,
        as_of=reference.as_of,
        source=reference.source,
        notes=reference.notes,
        gpus_measured=_gpus_here(host),
        gpus_catalog=_gpus_of(reference),
        rows=tuple(row for row in _rows(host, measured(hosts, node), reference) if _known(row)),
    )


def _known(row: Compared) -> bool:
    return row.measured is not None or row.catalog is not None


def _rows(host: Host, best: Measured, type_: Instance) -> list[Compared]:
    gpu_memory = min((gpu.memory_bytes for gpu in working(host) if gpu.memory_bytes is not None), default=None)
    disk_bytes = type_.remote_disk_bytes_per_second
    network_bytes = type_.network_bytes_per_second
    rows = [
        _row("memory per GPU", "bytes", _counted(gpu_memory), type_.gpu_memory_bytes),
        _row("vCPUs", "count", _counted(host.cores), type_.vcpus),
        _row("memory", "bytes", _counted(host.memory_bytes), type_.memory_bytes),
    ]
    if type_.gpu_count != 0 or host.gpus:
        published = type_.pcie_measured_bytes_per_second
        rows += [
            _row("host to GPU, slowest", "bytes/s", best.host_to_gpu, *_or_theory(published, type_)),
            _row("GPU pair, slowest", "bytes/s", best.slowest_pair, type_.pair_min_bytes_per_second),
            _row("GPU pair, fastest", "bytes/s", best.fastest_pair, type_.pair_max_bytes_per_second),
            _row(
                *("all-reduce inside, bus", "bytes/s", best.bus_inside),
                *(type_.interconnect_bytes_per_second, "links of one GPU"),
            ),
        ]
    tcp = best.network.best if best.network is not None else None
    burst = type_.network_burst_bytes_per_second
    sustained, says = (network_bytes, "sustained") if network_bytes is not None else (burst, "burst")
    return [
        *rows,
        _row("network, TCP", "bytes/s", tcp, sustained, says if sustained else "", network=True),
        _row("all-reduce across, bus", "bytes/s", best.bus_across, network_bytes, "network", network=True),
        _row("RDMA", "bytes/s", None, type_.rdma_bytes_per_second, network=True),
        _row("disk, sequential", "bytes/s", best.disk, disk_bytes, "network disks"),
    ]


def _row(
    name: str,
    unit: Unit,
    found: Interval | None,
    catalog: float | None,
    catalog_is: str = "",
    *,
    network: bool = False,
) -> Compared:
    says = catalog_is if catalog is not None else ""
    return Compared(name=name, unit=unit, measured=found, catalog=catalog, catalog_is=says, network=network)


def _or_theory(published: float | None, type_: Instance) -> tuple[float | None, str]:
    return (published, "measured") if published is not None else (type_.pcie_bytes_per_second, "x16 in theory")


def _counted(value: float | None) -> Interval | None:
    return None if value is None else exactly(value)


def _most(rates: Iterable[Interval], which: Callable[..., Interval]) -> Interval | None:
    known = list(rates)
    return which(known, key=lambda rate: rate.value) if known else None


def _largest(curves: Sequence[Curve]) -> Interval | None:
    """Bus bandwidth of the largest message of the curve with the most ranks."""
    if not curves:
        return None
    return max(curves, key=lambda item: item.ranks).sizes[-1].bus_bytes_per_second


def _gpus_here(host: Host) -> str:
    names = [gpu.name for gpu in working(host)]
    kinds = sorted(set(names))
    return ", ".join(f"{names.count(kind)} × {kind}" for kind in kinds) or "none"


def _gpus_of(reference: Instance) -> str | None:
    if reference.gpu_count is None:
        return None
    return "none" if reference.gpu_count == 0 else f"{reference.gpu_count:g} × {reference.gpu or reference.gpu_model}"
