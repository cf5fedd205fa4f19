"""What was measured against what the machine's type should have: line by line, shortfalls, the nearest types.

What the machine or the catalog does not know is ``None``, never zero, and nothing is found against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

from stash.analysis.findings.inside import host_copies, pair_copies
from stash.analysis.findings.machine import (
    Finding,
    Reach,
    fact_of,
    format_origin,
    make_finding,
    model_of,
    network_reach,
    working_gpus,
)
from stash.analysis.findings.rates import Curve, make_curve, sustained_rate
from stash.catalog.facts import Instance
from stash.catalog.offers import Catalog
from stash.core.formatting import Unit, format_bit_rate, format_fact, format_quantity
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.records.host import Host
from stash.core.units import format_bits

# Line by line


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
    """One machine compared with one instance type."""

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


def measured_figures(hosts: Sequence[Host], node: int) -> Measured:
    """The figures of ``hosts[node]``."""
    links = hosts[node].links
    alone = host_copies(links, "host to GPU", together=False).values() if links else ()
    pairs = pair_copies(links).values() if links else ()
    curves = [
        make_curve(exchange, hosts[node].hostname)
        for exchange in (links.exchanges if links else ())
    ]
    gpus = [item for item in curves if item.backend == "nccl" and item.sizes]
    reads = [
        rate
        for read in (links.reads if links else ())
        if read.pattern == "sequential"
        and (read.cold or read.direct)
        and (rate := sustained_rate(read)) is not None
    ]
    return Measured(
        host_to_gpu=_largest_rate(alone, min),
        slowest_pair=_largest_rate(pairs, min),
        fastest_pair=_largest_rate(pairs, max),
        bus_inside=_largest_message_rate([item for item in gpus if item.nodes == 1]),
        bus_across=_largest_message_rate(
            [item for item in curves if item.nodes > 1 and item.sizes]
        ),
        network=network_reach(hosts),
        disk=_largest_rate(reads, max),
    )


def compare(hosts: Sequence[Host], node: int, reference: Instance) -> Comparison:
    """Compare ``hosts[node]`` with the type ``reference``: one row for every quantity that either side knows."""
    names = [gpu.name for gpu in working_gpus(hosts[node])]
    gpus = None
    if reference.gpu_count is not None:
        kind = reference.gpu or reference.gpu_model
        gpus = f"{reference.gpu_count:g} × {kind}" if reference.gpu_count else "none"
    return Comparison(
        hostname=hosts[node].hostname,
        instance=reference.name,
        cloud=reference.cloud,
        as_of=reference.as_of,
        source=reference.source,
        notes=reference.notes,
        gpus_measured=", ".join(f"{names.count(kind)} × {kind}" for kind in sorted(set(names)))
        or "none",
        gpus_catalog=gpus,
        rows=tuple(
            row
            for row in _compared_rows(hosts, node, reference)
            if row.measured is not None or row.catalog is not None
        ),
    )


def _compared_rows(hosts: Sequence[Host], node: int, reference: Instance) -> Iterator[Compared]:
    host, best = hosts[node], measured_figures(hosts, node)
    memories = [gpu.memory_bytes for gpu in working_gpus(host) if gpu.memory_bytes is not None]
    for name, unit, value, catalog in (
        ("memory per GPU", "bytes", min(memories, default=None), reference.gpu_memory_bytes),
        ("vCPUs", "count", host.cores, reference.vcpus),
        ("memory", "bytes", host.memory_bytes, reference.memory_bytes),
    ):
        found = None if value is None else Interval(value=value, low=value, high=value)
        yield Compared(name=name, unit=cast(Unit, unit), measured=found, catalog=catalog)
    pcie, pcie_is = reference.pcie_measured_bytes_per_second, "measured"
    if pcie is None:
        pcie, pcie_is = reference.pcie_bytes_per_second, "x16 in theory"
    network, network_is = reference.network_bytes_per_second, "sustained"
    if network is None:
        network, network_is = reference.network_burst_bytes_per_second, "burst"
    inside = reference.interconnect_bytes_per_second
    tcp = best.network.best if best.network is not None else None
    rates = [
        ("host to GPU, slowest", best.host_to_gpu, pcie, pcie_is),
        ("GPU pair, slowest", best.slowest_pair, reference.pair_min_bytes_per_second, ""),
        ("GPU pair, fastest", best.fastest_pair, reference.pair_max_bytes_per_second, ""),
        ("all-reduce inside, bus", best.bus_inside, inside, "links of one GPU"),
    ]
    if reference.gpu_count == 0 and not host.gpus:
        rates = []
    across = "all-reduce across, bus"
    rates += [
        ("network, TCP", tcp, network, network_is),
        (across, best.bus_across, reference.network_bytes_per_second, "network"),
        ("RDMA", None, reference.rdma_bytes_per_second, ""),
        ("disk, sequential", best.disk, reference.remote_disk_bytes_per_second, "network disks"),
    ]
    for name, rate, catalog, catalog_is in rates:
        yield Compared(
            name=name,
            unit="bytes/s",
            measured=rate,
            catalog=catalog,
            catalog_is="" if catalog is None else catalog_is,
            network=name in ("network, TCP", across, "RDMA"),
        )


def _largest_rate(rates: Iterable[Interval], which: Callable[..., Interval]) -> Interval | None:
    known = list(rates)
    return which(known, key=lambda rate: rate.value) if known else None


def _largest_message_rate(curves: Sequence[Curve]) -> Interval | None:
    """Bus bandwidth of the largest message of the curve with the most ranks."""
    if not curves:
        return None
    return max(curves, key=lambda item: item.ranks).sizes[-1].bus_bytes_per_second


# Shortfalls

_TCP = 0.10
"""Of the label: headers, acknowledgements, and the label's own rounding."""
_PCIE_THEORY = 0.35
"""Packets' headers take 15 to 25 % of PCIe's rate; below that, something is wrong."""
_PUBLISHED = 0.15
"""Between another's measurement and ours."""
_ALL_REDUCE = 0.45
"""nccl-tests on healthy NVLink machines reach 60 to 80 % of the links' rate as bus bandwidth."""


class _Promise(NamedTuple):
    """What a link reaches, and what the type's has by the catalog."""

    finding: str
    says: str
    """With ``{}`` for the rate."""
    rate: Interval | None
    about: str
    promised: float | None
    tolerance: float
    """What protocols and libraries are known to cost."""
    remark: str = ""


def shortfall_findings(hosts: Sequence[Host], node: int, reference: Instance) -> Iterator[Finding]:
    """Links of ``hosts[node]`` that carry less than a ``reference`` should."""
    host, best = hosts[node], measured_figures(hosts, node)
    pcie = ("PCIe x16 in theory", reference.pcie_bytes_per_second, _PCIE_THEORY)
    if reference.pcie_measured_bytes_per_second is not None:
        pcie = ("host to GPU", reference.pcie_measured_bytes_per_second, _PUBLISHED)
    pairs = [
        _Promise(
            "slow-pairs",
            f"the {name} pair of GPUs here reaches {{}}",
            rate,
            f"{name} pair",
            promised,
            _ALL_REDUCE,
            ": links that the type can have are missing here",
        )
        for name, rate, promised in (
            ("fastest", best.fastest_pair, reference.pair_max_bytes_per_second),
            ("slowest", best.slowest_pair, reference.pair_min_bytes_per_second),
        )
    ]
    inside = ("links of one GPU", reference.interconnect_bytes_per_second, _ALL_REDUCE)
    says = "all-reduce inside the machine reaches a bus bandwidth of {}"
    promises = [
        _Promise("slow-pcie", "pinned copies to the slowest GPU reach {}", best.host_to_gpu, *pcie),
        *pairs,
        _Promise("slow-all-reduce", says, best.bus_inside, *inside),
    ]
    models = " ".join(disk.model.lower() for disk in host.disks if disk.model is not None)
    if not any(word in models for word in ("instance storage", "local", "ephemeral")):
        limits = ": the volume, or one reader, is what limits"
        disk = ("network disks", reference.remote_disk_bytes_per_second, 0.20, limits)
        promises.append(_Promise("slow-disk", "sequential reads reach {}", best.disk, *disk))
    yield from _find_shortfalls(promises, reference, host)


def _find_shortfalls(
    promises: Iterable[_Promise], reference: Instance, host: Host | None = None
) -> Iterator[Finding]:
    """The findings about ``host``, or about all machines together: each once, e.g. of the fastest pair of GPUs.

    Only if the whole interval lies below the fact less its tolerance.
    """
    found = set[str]()
    for name, says, rate, about, promised, tolerance, remark in promises:
        fact = fact_of(reference, about, promised, "bytes/s")
        if name in found or rate is None or fact is None:
            continue
        if rate.is_below(fact.value, tolerance):
            found.add(name)
            reached = format_quantity(rate, "bytes/s") if host else format_bit_rate(rate)
            should = format_fact(fact.value, "bytes/s") if host else format_bits(fact.value)
            text = f"{says.format(reached)}; {fact.about}: {should} {format_origin(fact)}{remark}"
            yield make_finding(host, name, text, rate, fact)


def network_shortfalls(hosts: Sequence[Host], reference: Instance) -> Iterator[Finding]:
    """What the fastest pair of nodes, and all-reduce across all, reach of the type's network."""
    best = measured_figures(hosts, 0)
    promised = ("sustained network", reference.network_bytes_per_second)
    says = f"all-reduce across {len(hosts)} nodes reaches a bus bandwidth of {{}}"  # of a ring, it cannot exceed it
    promises = [_Promise("slow-all-reduce", says, best.bus_across, *promised, _ALL_REDUCE)]
    if best.network is not None:
        how = "one flow" if best.network.flows == 1 else f"{best.network.flows} flows"
        says = f"the network reaches {{}} with {how}"
        promises.insert(0, _Promise("slow-network", says, best.network.best, *promised, _TCP))
    yield from _find_shortfalls(promises, reference)


# The nearest types

_OTHER_MODEL = 3.0
"""Distance of another GPU model: as far as 8 GPUs are from 160, so that no size makes up for it."""
_CLOSE = 0.15
"""Natural logarithm of a ratio up to which two sizes count as the same."""


class Near(Record):
    """One type and how far the machine is from it."""

    instance: str
    cloud: str
    distance: float
    """Mean absolute natural logarithm of the ratios compared; 0 is the same shape."""
    differs: tuple[str, ...] = ()
    """In words, what is not the same, e.g. ``network 0.4 times``."""
    not_compared: tuple[str, ...] = ()
    """Dimensions that the machine or the catalog does not know."""


def nearest_types(
    hosts: Sequence[Host], node: int, catalog: Catalog, count: int = 3
) -> tuple[Near, ...]:
    """The ``count`` types most like ``hosts[node]``, nearest first; empty when too little is known of it.

    Compares shapes. A likeness is not an identity: clouds sell the same shape under many names.
    """
    host = hosts[node]
    gpus = working_gpus(hosts[node])
    network = network_reach(hosts)
    shape: dict[str, float | None] = {
        "GPUs": float(len(gpus)),
        "memory per GPU": min(
            (float(gpu.memory_bytes) for gpu in gpus if gpu.memory_bytes is not None), default=None
        ),
        "vCPUs": host.cores,
        "memory": host.memory_bytes,
        "network": None if network is None else network.best.value,
    }
    if sum(value is not None for value in shape.values()) < 2:
        return ()
    models = {model_of(gpu, catalog) for gpu in gpus}
    model = models.pop() if len(models) == 1 else None
    found = [
        near
        for instance in catalog.instances
        if (near := _likeness(shape, model, instance)) is not None
    ]
    found.sort(key=lambda near: (near.distance, len(near.not_compared), near.cloud, near.instance))
    return tuple(found[:count])


def _likeness(shape: dict[str, float | None], model: str | None, instance: Instance) -> Near | None:
    """``None`` where one has GPUs and the other has none: no other likeness matters then."""
    theirs = {
        "GPUs": float(instance.devices) if instance.gpu_count else instance.gpu_count,
        "memory per GPU": instance.gpu_memory_bytes,
        "vCPUs": instance.vcpus,
        "memory": instance.memory_bytes,
        "network": instance.network_bytes_per_second,
    }
    if theirs["GPUs"] is not None and bool(shape["GPUs"]) != bool(theirs["GPUs"]):
        return None
    steps = []
    differs = []
    missing = ["GPU model"] if shape["GPUs"] and model is None else []
    if model is not None and instance.gpu_model is not None and model != instance.gpu_model:
        steps.append(_OTHER_MODEL)
        differs.append(f"{instance.gpu_model} instead of {model}")
    for name, mine in shape.items():
        other = theirs[name]
        if not shape["GPUs"] and name in ("GPUs", "memory per GPU"):
            continue
        if not mine or not other:
            missing.append(name)
            continue
        step = abs(math.log(mine) - math.log(other))
        steps.append(step)
        if step > _CLOSE:
            differs.append(f"{name} {mine / other:.2g} times")
    if not steps:
        return None
    return Near(
        instance=instance.name,
        cloud=instance.cloud,
        distance=sum(steps) / len(steps),
        differs=tuple(differs),
        not_compared=tuple(missing),
    )
