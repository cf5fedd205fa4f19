"""Findings against the catalog: links that carry less than the machine's type should have.

Each needs a fact with a date and a source, and fires only when the whole interval lies below the fact less a
tolerance, which is what protocols and libraries are known to cost. Where the catalog is silent, so is this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from stash.base.records import Host
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import bits, plain, quantity
from stash.base.words.units import format_bits
from stash.derive.findings.against import Measured, measured
from stash.derive.findings.finding import Finding, fact_of, origin, unlike
from stash.keep.catalog import Instance

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
