"""Findings against the catalog: links that carry less than the machine's type should have.

Each needs a fact with a date and a source, and fires only when the whole interval lies below the fact less a
tolerance, which is what protocols and libraries are known to cost. Where the catalog is silent, so is this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stash.base.records import Host
from stash.base.words.quantities import bits, plain, plain_bits, quantity
from stash.derive.findings.against import Measured, measured
from stash.derive.findings.finding import Finding, fact_of, origin
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


def shortfall_findings(hosts: Sequence[Host], node: int, reference: Instance) -> Iterator[Finding]:
    """Findings about ``hosts[node]``, which is meant to be a ``reference``."""
    best = measured(hosts, node)
    yield from _pcie(hosts[node], best, reference)
    yield from _pairs(hosts[node], best, reference)
    yield from _all_reduce(hosts[node], best, reference)
    yield from _disk(hosts[node], best, reference)


def _pcie(host: Host, best: Measured, reference: Instance) -> Iterator[Finding]:
    published = fact_of(reference, "host to GPU", reference.pcie_measured_bytes_per_second, "bytes/s")
    theory = fact_of(reference, "PCIe x16 in theory", reference.pcie_bytes_per_second, "bytes/s")
    fact, tolerance = (published, _PUBLISHED) if published is not None else (theory, _PCIE_THEORY)
    rate = best.host_to_gpu
    if rate is None or fact is None or not rate.below(fact.value, tolerance):
        return
    yield Finding(
        name="slow-pcie",
        hostname=host.hostname,
        text=f"pinned copies to the slowest GPU reach {quantity(rate, 'bytes/s')}; {fact.about}: "
        f"{plain(fact.value, 'bytes/s')} {origin(fact)}",
        unit="bytes/s",
        measured=rate,
        fact=fact,
    )


def _pairs(host: Host, best: Measured, reference: Instance) -> Iterator[Finding]:
    for name, rate, value in (
        ("fastest", best.fastest_pair, reference.pair_max_bytes_per_second),
        ("slowest", best.slowest_pair, reference.pair_min_bytes_per_second),
    ):
        fact = fact_of(reference, f"{name} pair", value, "bytes/s")
        if rate is None or fact is None or not rate.below(fact.value, _ALL_REDUCE):
            continue
        yield Finding(
            name="slow-pairs",
            hostname=host.hostname,
            text=f"the {name} pair of GPUs here reaches {quantity(rate, 'bytes/s')}; {fact.about}: "
            f"{plain(fact.value, 'bytes/s')} {origin(fact)}: links that the type can have are missing here",
            unit="bytes/s",
            measured=rate,
            fact=fact,
        )
        return


def _all_reduce(host: Host, best: Measured, reference: Instance) -> Iterator[Finding]:
    fact = fact_of(reference, "links of one GPU", reference.interconnect_bytes_per_second, "bytes/s")
    rate = best.bus_inside
    if rate is None or fact is None or not rate.below(fact.value, _ALL_REDUCE):
        return
    yield Finding(
        name="slow-all-reduce",
        hostname=host.hostname,
        text=f"all-reduce inside the machine reaches a bus bandwidth of {quantity(rate, 'bytes/s')}; {fact.about}: "
        f"{plain(fact.value, 'bytes/s')} {origin(fact)}",
        unit="bytes/s",
        measured=rate,
        fact=fact,
    )


def slow_network(hosts: Sequence[Host], reference: Instance) -> Iterator[Finding]:
    """One finding for all nodes: what the fastest pair reaches of the type's label."""
    fact = fact_of(reference, "sustained network", reference.network_bytes_per_second, "bytes/s")
    best = measured(hosts, 0)
    if best.network is None or fact is None or not best.network.best.below(fact.value, _TCP):
        return
    flows = best.network.flows
    how = "one flow" if flows == 1 else f"{flows} flows"
    yield Finding(
        name="slow-network",
        text=f"the network reaches {bits(best.network.best)} with {how}; {fact.about}: "
        f"{plain_bits(fact.value)} {origin(fact)}",
        unit="bytes/s",
        measured=best.network.best,
        fact=fact,
    )


def slow_across(hosts: Sequence[Host], reference: Instance) -> Iterator[Finding]:
    """All-reduce across nodes against the type's network; a ring's bus bandwidth cannot exceed it."""
    fact = fact_of(reference, "sustained network", reference.network_bytes_per_second, "bytes/s")
    rate = measured(hosts, 0).bus_across
    if rate is None or fact is None or not rate.below(fact.value, _ALL_REDUCE):
        return
    yield Finding(
        name="slow-all-reduce",
        text=f"all-reduce across {len(hosts)} nodes reaches a bus bandwidth of {bits(rate)}; {fact.about}: "
        f"{plain_bits(fact.value)} {origin(fact)}",
        unit="bytes/s",
        measured=rate,
        fact=fact,
    )


def _disk(host: Host, best: Measured, reference: Instance) -> Iterator[Finding]:
    fact = fact_of(reference, "network disks", reference.remote_disk_bytes_per_second, "bytes/s")
    models = [disk.model.lower() for disk in host.disks if disk.model is not None]
    if any(word in model for model in models for word in _LOCAL_DISKS):
        return
    if best.disk is None or fact is None or not best.disk.below(fact.value, _DISK):
        return
    yield Finding(
        name="slow-disk",
        hostname=host.hostname,
        text=f"sequential reads reach {quantity(best.disk, 'bytes/s')}; {fact.about}: "
        f"{plain(fact.value, 'bytes/s')} {origin(fact)}: the volume, or one reader, is what limits",
        unit="bytes/s",
        measured=best.disk,
        fact=fact,
    )
