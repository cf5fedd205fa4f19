"""What was measured beside what the machine's type should have: line by line, shortfalls, the nearest types."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stash.analysis.findings.inside import host_copies, pair_copies
from stash.analysis.findings.machine import Reach, exactly, model_of, reach, working
from stash.analysis.findings.rates import Curve, Finding, curve, fact_of, origin, sustained_rate, unlike
from stash.catalog.facts import Instance
from stash.catalog.offers import Catalog
from stash.core.formatting import Unit, bits, plain, quantity
from stash.core.intervals import Interval
from stash.core.records.base import Record
from stash.core.records.host import Host
from stash.core.units import format_bits

# Against ---------------------------------------------------------------------------------------------------
# What was measured beside what the machine's type should have, line by line.
#
# One row for every quantity that either side knows; what one of them does not know is ``None``, never zero. Says
# nothing of whether a ratio is good: ``shortfall`` does.


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
    sustained, which = (network_bytes, "sustained") if network_bytes is not None else (burst, "burst")
    return [
        *rows,
        _row("network, TCP", "bytes/s", tcp, sustained, which if sustained else "", network=True),
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


# Shortfall -------------------------------------------------------------------------------------------------
# Findings against the catalog: links that carry less than the machine's type should have.
#
# Each needs a fact with a date and a source, and fires only when the whole interval lies below the fact less a
# tolerance, which is what protocols and libraries are known to cost. Where the catalog is silent, so is this.

_TCP = 0.10
"""Of the label: headers, acknowledgements, and the label's own rounding."""
_PCIE_THEORY = 0.35
"""Packets' headers take 15 to 25 % of PCIe's rate; below that, something is wrong."""
_PUBLISHED = 0.15
"""Between somebody else's measurement and ours."""
_ALL_REDUCE = 0.45
"""nccl-tests on healthy NVLink machines reach 60 to 80 % of the links' rate as bus bandwidth."""
_DISK = 0.20

_LOCAL_DISKS = ("instance storage", "local", "ephemeral")


class _Promise(NamedTuple):
    """One link of a type: what was measured of it, what the catalog has for it, and how to say so."""

    finding: str
    says: str
    """Before the measured rate."""
    rate: Interval | None
    about: str
    """What the catalog's figure is."""
    promised: float | None
    tolerance: float
    remark: str = ""
    """After the rate that was promised."""
    network: bool = False
    """Written in bits per second."""
    how: str = ""
    """After the measured rate."""


def shortfall_findings(hosts: Sequence[Host], node: int, reference: Instance) -> Iterator[Finding]:
    """Findings about ``hosts[node]``, which is meant to be a ``reference``."""
    host, best = hosts[node], measured(hosts, node)
    yield from _short([_pcie(best, reference)], reference, host)
    # Where the fastest pair is too slow, nothing is said of the slowest.
    yield from [*_short(_pairs(best, reference), reference, host)][:1]
    yield from _short([_all_reduce(best, reference)], reference, host)
    if not _disk_is_local(host):
        yield from _short([_disk(best, reference)], reference, host)


def slow_network(hosts: Sequence[Host], reference: Instance) -> Iterator[Finding]:
    """One finding for all nodes: what the fastest pair reaches of the type's label."""
    fastest = measured(hosts, 0).network
    if fastest is None:
        return
    how = " with one flow" if fastest.flows == 1 else f" with {fastest.flows} flows"
    rate, promised = fastest.best, reference.network_bytes_per_second
    about = ("sustained network", promised, _TCP)
    yield from _short(
        [_Promise("slow-network", "the network reaches", rate, *about, network=True, how=how)], reference
    )


def slow_across(hosts: Sequence[Host], reference: Instance) -> Iterator[Finding]:
    """All-reduce across nodes against the type's network; a ring's bus bandwidth cannot exceed it."""
    says = f"all-reduce across {len(hosts)} nodes reaches a bus bandwidth of"
    about = ("sustained network", reference.network_bytes_per_second, _ALL_REDUCE)
    rate = measured(hosts, 0).bus_across
    yield from _short([_Promise("slow-all-reduce", says, rate, *about, network=True)], reference)


def _short(promises: Iterable[_Promise], reference: Instance, host: Host | None = None) -> Iterator[Finding]:
    """The promises that are not kept, as findings about ``host``, or about all machines together."""
    for link in promises:
        fact = fact_of(reference, link.about, link.promised, "bytes/s")
        if link.rate is None or fact is None or not link.rate.below(fact.value, link.tolerance):
            continue
        reached = bits(link.rate) if link.network else quantity(link.rate, "bytes/s")
        promised = format_bits(fact.value) if link.network else plain(fact.value, "bytes/s")
        text = f"{link.says} {reached}{link.how}; {fact.about}: {promised} {origin(fact)}{link.remark}"
        yield unlike(fact, link.rate, link.finding, text, host)


def _pcie(best: Measured, reference: Instance) -> _Promise:
    says = "pinned copies to the slowest GPU reach"
    published, theory = reference.pcie_measured_bytes_per_second, reference.pcie_bytes_per_second
    if published is not None:
        return _Promise("slow-pcie", says, best.host_to_gpu, "host to GPU", published, _PUBLISHED)
    return _Promise("slow-pcie", says, best.host_to_gpu, "PCIe x16 in theory", theory, _PCIE_THEORY)


def _pairs(best: Measured, reference: Instance) -> Iterator[_Promise]:
    for name, rate, promised in (
        ("fastest", best.fastest_pair, reference.pair_max_bytes_per_second),
        ("slowest", best.slowest_pair, reference.pair_min_bytes_per_second),
    ):
        says = f"the {name} pair of GPUs here reaches"
        missing = ": links that the type can have are missing here"
        yield _Promise("slow-pairs", says, rate, f"{name} pair", promised, _ALL_REDUCE, missing)


def _all_reduce(best: Measured, reference: Instance) -> _Promise:
    says = "all-reduce inside the machine reaches a bus bandwidth of"
    promised = reference.interconnect_bytes_per_second
    return _Promise("slow-all-reduce", says, best.bus_inside, "links of one GPU", promised, _ALL_REDUCE)


def _disk(best: Measured, reference: Instance) -> _Promise:
    promised, limits = reference.remote_disk_bytes_per_second, ": the volume, or one reader, is what limits"
    return _Promise("slow-disk", "sequential reads reach", best.disk, "network disks", promised, _DISK, limits)


def _disk_is_local(host: Host) -> bool:
    models = [disk.model.lower() for disk in host.disks if disk.model is not None]
    return any(word in model for model in models for word in _LOCAL_DISKS)


# Nearest ---------------------------------------------------------------------------------------------------
# Which instance types a machine of unknown type is most like, by what was seen of it.
#
# Compares shapes (GPU model, their number and memory, vCPUs, memory, network) and says what could not be compared.
# A likeness is not an identity: clouds sell the same shape under many names.

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


Dimensions = dict[str, float | None]


def nearest_types(hosts: Sequence[Host], node: int, catalog: Catalog, count: int = 3) -> tuple[Near, ...]:
    """The ``count`` types most like ``hosts[node]``, nearest first; empty when too little is known of it."""
    shape, model = _shape_of_host(hosts, node), _model(hosts[node], catalog)
    if sum(value is not None for value in shape.values()) < 2:
        return ()
    found = [near for instance in catalog.instances if (near := _near(shape, model, instance)) is not None]
    found.sort(key=lambda near: (near.distance, len(near.not_compared), near.cloud, near.instance))
    return tuple(found[:count])


def _model(host: Host, catalog: Catalog) -> str | None:
    models = {model_of(gpu, catalog) for gpu in working(host)}
    return models.pop() if len(models) == 1 else None


def _shape_of_host(hosts: Sequence[Host], node: int) -> Dimensions:
    host = hosts[node]
    gpus = working(host)
    memories = [gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None]
    network = reach(hosts)
    return {
        "GPUs": float(len(gpus)),
        "memory per GPU": float(min(memories)) if memories else None,
        "vCPUs": None if host.cores is None else float(host.cores),
        "memory": None if host.memory_bytes is None else float(host.memory_bytes),
        "network": None if network is None else network.best.value,
    }


def _shape_of_type(instance: Instance) -> Dimensions:
    return {
        "GPUs": float(instance.devices) if instance.gpu_count else instance.gpu_count,
        "memory per GPU": instance.gpu_memory_bytes,
        "vCPUs": instance.vcpus,
        "memory": instance.memory_bytes,
        "network": instance.network_bytes_per_second,
    }


def _near(shape: Dimensions, model: str | None, instance: Instance) -> Near | None:
    """``None`` where one has GPUs and the other has none: no other likeness matters then."""
    theirs = _shape_of_type(instance)
    if theirs["GPUs"] is not None and bool(shape["GPUs"]) != bool(theirs["GPUs"]):
        return None
    steps, differs = [], list(_other_model(model, instance))
    missing = ["GPU model"] if shape["GPUs"] and model is None else []
    steps += [_OTHER_MODEL] * len(differs)
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


def _other_model(model: str | None, instance: Instance) -> Iterator[str]:
    if model is not None and instance.gpu_model is not None and model != instance.gpu_model:
        yield f"{instance.gpu_model} instead of {model}"
