"""Findings, and those about what one machine is and about the network between several.

A finding is one plain sentence about a machine, with the measurement and the fact behind it. Here they come from the
identity of a host, the streams between hosts and, if its type is known, the catalog; what these leave open is passed
over in silence. What a type's links should carry, ``against`` knows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stash.analysis.findings.rates import rate_of
from stash.catalog.facts import GpuFacts, Instance, name_words
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import Unit, format_bit_rate, format_fact, join_names
from stash.core.intervals import Interval, find_uneven
from stash.core.records.base import Record
from stash.core.records.host import Gpu, Host, Nic
from stash.core.units import format_bits, format_bytes

# Findings


class Fact(Record):
    """What a machine should have, and who says so."""

    value: float
    unit: Unit
    about: str
    """What it is a fact about, e.g. ``network of p3.8xlarge``."""
    as_of: str | None = None
    """ISO date; ``None`` for what the machine itself claims."""
    source: str = "the machine itself"


class Finding(Record):
    """One sentence worth reading, and what it rests on."""

    name: str
    """Which kind it is, e.g. ``slow-pairs``; ``docs/probe.md`` lists them all."""
    hostname: str | None = None
    """``None`` when it is about several machines."""
    text: str
    unit: Unit | None = None
    """Of ``measured``."""
    measured: Interval | None = None
    fact: Fact | None = None


def make_finding(
    host: Host | None,
    name: str,
    text: str,
    measured: Interval | float | None = None,
    fact: Fact | None = None,
    unit: Unit | None = None,
) -> Finding:
    """The finding about ``host``, or several machines; what is no interval was counted or reported, without spread."""
    if isinstance(measured, (int, float)):
        measured = Interval(value=measured, low=measured, high=measured)
    return Finding(
        name=name,
        hostname=None if host is None else host.hostname,
        text=text,
        unit=unit if fact is None or measured is None else fact.unit,
        measured=measured,
        fact=fact,
    )


def fact_of(item: Instance | GpuFacts, about: str, value: float | None, unit: Unit) -> Fact | None:
    """The catalog's ``value`` as a fact with its date and source; ``None`` where the catalog is silent."""
    if value is None:
        return None
    return Fact(
        value=value,
        unit=unit,
        about=f"{about} of {item.name}",
        as_of=item.as_of,
        source=item.source,
    )


def format_origin(fact: Fact) -> str:
    """``"(catalog of 2026-11-20: EC2 user guide)"``, to stand behind a fact."""
    return f"({fact.source})" if fact.as_of is None else f"(catalog of {fact.as_of}: {fact.source})"


# One machine

STEAL = 0.02
"""Share of CPU time taken by others from which it is worth a word."""
_MEMORY_TOLERANCE = 0.10
"""Kernels, firmware and drivers keep part of what is installed."""


def machine_findings(host: Host, reference: Instance | None, catalog: Catalog) -> Iterator[Finding]:
    """Findings that need no measured link. ``reference`` is what the machine should be, if that is known."""
    for gpu in host.gpus:
        if gpu.fault is not None:
            text = f"GPU {gpu.index} does not answer: the driver says {gpu.fault.rstrip('.')!r}"
            yield make_finding(host, "lost-gpu", text)
    limits, cores, installed = host.limits, host.cores, host.memory_bytes
    cpus = None if limits is None else limits.cpus
    allowed = None if limits is None else limits.memory_bytes
    if cpus is not None and cores is not None and cpus < cores:
        text = (
            f"a control group allows {cpus:g} CPUs of the {cores} cores: more processes than "
            "that wait for each other"
        )
        fact = Fact(value=cores, unit="count", about="cores this process may use")
        yield make_finding(host, "cpu-limit", text, cpus, fact)
    if allowed is not None and installed and allowed < installed:
        text = f"a control group allows {format_bytes(allowed)} of the {format_bytes(installed)} of memory"
        fact = Fact(value=installed, unit="bytes", about="installed memory")
        yield make_finding(host, "memory-limit", text, allowed, fact)
    stolen = host.steal_fraction
    if stolen is not None and stolen > STEAL:
        text = (
            f"other tenants took {stolen:.1%} of the CPU time while this was measured (steal); expect slower "
            "and less even steps than on a dedicated machine"
        )
        yield make_finding(host, "steal", text, stolen, unit="fraction")
    if reference is not None:
        yield from _unlike_type(host, reference, catalog)


def _unlike_type(host: Host, reference: Instance, catalog: Catalog) -> Iterator[Finding]:
    """What the machine is against what its type is: GPUs, cores, memory, RDMA."""
    gpus, source = working_gpus(host), f"(catalog of {reference.as_of}: {reference.source})"
    # a slice of one is a GPU to a driver
    devices = float(reference.devices) if reference.gpu_count else None
    vcpus, here = reference.vcpus, host.cores
    if devices is not None and len(gpus) != devices:
        text = f"{len(gpus)} GPUs work here, {reference.name} has {devices:g} {source}"
        fact = fact_of(reference, "GPUs", devices, "count")
        yield make_finding(host, "gpu-count", text, len(gpus), fact)
    if vcpus is not None and here is not None and here != vcpus:
        text = f"this process may use {here} cores, {reference.name} has {vcpus:g} vCPUs {source}"
        fact = fact_of(reference, "vCPUs", vcpus, "count")
        yield make_finding(host, "vcpu-count", text, here, fact)
    models = ((gpu, model_of(gpu, catalog)) for gpu in gpus)
    others = Counter(
        gpu.name for gpu, model in models if model is not None and model != reference.gpu_model
    )
    if others and reference.gpu_model is not None:
        names = join_names([f"{count} × {name}" for name, count in others.items()])
        text = f"the GPUs are {names}, {reference.name} has {reference.gpu_model} {source}"
        yield make_finding(host, "gpu-model", text)
    smallest = min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes is not None), default=None)
    per_gpu = reference.gpu_memory_bytes
    for name, has, size, about, should in (
        ("memory", "this machine has", host.memory_bytes, "memory", reference.memory_bytes),
        ("gpu-memory", "the smallest GPU has", smallest, "memory per GPU", per_gpu),
    ):
        fact = fact_of(reference, about, should, "bytes")
        if size is None or fact is None or abs(size / fact.value - 1) <= _MEMORY_TOLERANCE:
            continue
        text = f"{has} {format_bytes(size)} of memory, {fact.about} is {format_fact(fact.value, 'bytes')} {source}"
        yield make_finding(host, name, text, size, fact)
    # Without any network interface seen nothing was looked at, so nothing can be missing.
    if reference.rdma and host.nics and not any(nic.rdma for nic in host.nics):
        text = (
            f"there is no RDMA device, {reference.name} can have one {source}: "
            "it may have to be chosen when the machine is rented, or its driver is missing"
        )
        fact = fact_of(reference, "RDMA", reference.rdma_bytes_per_second, "bytes/s")
        yield make_finding(host, "no-rdma", text, fact=fact)


def model_of(gpu: Gpu, catalog: Catalog) -> str | None:
    """What clouds call this GPU, e.g. ``V100``; ``None`` for one that is not in the catalog."""
    try:
        return catalog.gpu(gpu.name).model
    except UserError:
        models = {
            known.model for known in catalog.gpus if name_words(known.model) <= name_words(gpu.name)
        }
        return models.pop() if len(models) == 1 else None


def working_gpus(host: Host) -> tuple[Gpu, ...]:
    """The GPUs that the driver could talk to."""
    return tuple(gpu for gpu in host.gpus if gpu.fault is None)


# The network between machines

SEVERAL_HELP = 1.25
"""How many times more several flows must carry than one to be worth a word."""
_CLAIM_TOLERANCE = 0.10
"""Headers and acknowledgements take part of what an interface signals."""

Flows = dict[tuple[int, int], Interval]


class Reach(Record):
    """What the network between the fastest pair of nodes carries."""

    source: int
    target: int
    one: Interval | None
    """With one flow."""
    best: Interval
    flows: int
    """Number of flows that carried most."""


def rates_by_flows(hosts: Sequence[Host]) -> dict[int, Flows]:
    """Rates of all streams, by number of flows, then by (source, target)."""
    found: dict[int, Flows] = {}
    for host in hosts:
        for stream in host.links.streams if host.links is not None else ():
            if (rate := rate_of(stream.timings)) is not None:
                found.setdefault(stream.flows, {})[stream.source, stream.target] = rate
    return found


def network_reach(hosts: Sequence[Host]) -> Reach | None:
    """The fastest stream of all and what one flow does between the same nodes; ``None`` without streams."""
    rates = rates_by_flows(hosts)
    streams = [
        (rate.value, flows, pair) for flows, pairs in rates.items() for pair, rate in pairs.items()
    ]
    if not streams:
        return None
    _, flows, pair = max(streams)
    return Reach(
        source=pair[0],
        target=pair[1],
        one=rates.get(1, {}).get(pair),
        best=rates[flows][pair],
        flows=flows,
    )


def network_findings(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Findings from the streams between nodes: one flow against several, slow nodes, what an interface claims."""
    rates = rates_by_flows(hosts)
    fastest = network_reach(hosts)
    if fastest is None:
        return
    one, best, flows = fastest.one, fastest.best, fastest.flows
    if one is not None and flows > 1 and one.slower_than(best, SEVERAL_HELP):
        text = (
            f"one TCP flow reaches {format_bit_rate(one)}, {flows} reach {format_bit_rate(best)} (node "
            f"{fastest.source} to {fastest.target}): exchange over one connection leaves part of the network unused"
        )
        fact = Fact(value=best.value, unit="bytes/s", about=f"{flows} flows between the same nodes")
        yield make_finding(None, "one-flow", text, one, fact)
    # With several flows the machines and the wire show, with one flow its TCP window too.
    yield from _uneven_nodes(hosts, rates[max(rates)])
    host = hosts[fastest.source] if fastest.source < len(hosts) else None
    nic = claiming_interface(host) if host is not None else None
    if nic is None or nic.bytes_per_second is None:
        return
    claim = nic.bytes_per_second
    end = ""
    if best.is_above(claim):
        end = "so the claim means nothing"
    elif best.is_below(claim, _CLAIM_TOLERANCE):
        end = f"less than the {format_bits(claim)} it claims: the network behind it is limited, shared or far away"
    if end:
        text = (
            f"{nic.name} claims {format_bits(claim)} and TCP reaches {format_bit_rate(best)}, {end}"
        )
        fact = Fact(value=claim, unit="bytes/s", about=f"what {nic.name} claims")
        yield make_finding(host, "nic-claim", text, best, fact)


def _uneven_nodes(hosts: Sequence[Host], rates: Flows) -> Iterator[Finding]:
    uneven = find_uneven(rates)
    if uneven is None:
        return
    fastest, slow = uneven
    sound = {node for pair in rates if pair not in slow for node in pair}
    blamed = sorted({node for pair in slow for node in pair} - sound)
    known = {node: host for node, host in enumerate(hosts) if node in blamed}
    names = [f"{node} ({known[node].hostname})" if node in known else str(node) for node in blamed]
    start = "some nodes reach each other more slowly"
    if blamed:
        who, has = ("nodes", "have") if len(blamed) > 1 else ("node", "has")
        start = f"{who} {join_names(names)} {has} a slower network than the others"
    worst, best = rates[slow[0]], rates[fastest]
    text = (
        f"{start}: {format_bit_rate(worst)} from node {slow[0][0]} to {slow[0][1]}, "
        f"{format_bit_rate(best)} from node {fastest[0]} to {fastest[1]}; the slowest node sets the pace of every exchange"
    )
    fact = Fact(value=best.value, unit="bytes/s", about=f"node {fastest[0]} to {fastest[1]}")
    only = known.get(blamed[0]) if len(blamed) == 1 else None
    yield make_finding(only, "uneven-nodes", text, worst, fact)


def claiming_interface(host: Host) -> Nic | None:
    """The one interface with hardware or a hypervisor behind it that claims a rate; ``None`` if there are several.

    Bridges and virtual pairs inside a machine claim rates too, and mean nothing by it: they have no driver.
    """
    claims = [
        nic for nic in host.nics if nic.bytes_per_second is not None and nic.driver is not None
    ]
    return claims[0] if len(claims) == 1 else None
