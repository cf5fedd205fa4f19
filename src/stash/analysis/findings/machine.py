"""Findings about what one machine is, and about the network between several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from stash.analysis.findings.rates import Fact, Finding, fact_of, origin, stream_rate, unlike
from stash.catalog.facts import Instance, tokens
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import bits, listed, plain
from stash.core.intervals import Interval, unevenness
from stash.core.records.base import Record
from stash.core.records.host import Gpu, Host, Nic
from stash.core.units import format_bits, format_bytes

# Machine ---------------------------------------------------------------------------------------------------
# Findings about what one machine is: lost GPUs, limits on its cores and memory, stolen time, its type's promises.
#
# Reads the identity of a host and, if its type is known, the catalog's facts about it. What either leaves open is
# passed over in silence.

STEAL = 0.02
"""Share of CPU time taken by others from which it is worth a word."""
_MEMORY_TOLERANCE = 0.10
"""Kernels, firmware and drivers keep part of what is installed."""


def machine_findings(host: Host, reference: Instance | None, catalog: Catalog) -> Iterator[Finding]:
    """Findings that need no measured link. ``reference`` is what the machine should be, if that is known."""
    yield from _lost_gpus(host)
    yield from _limits(host)
    yield from _steal(host)
    if reference is not None:
        yield from _counts(host, reference)
        yield from _gpu_model(host, reference, catalog)
        yield from _memory(host, reference)
        yield from _rdma(host, reference)


def model_of(gpu: Gpu, catalog: Catalog) -> str | None:
    """What clouds call this GPU, e.g. ``V100``; ``None`` for one that is not in the catalog."""
    try:
        return catalog.gpu(gpu.name).model
    except UserError:
        models = {known.model for known in catalog.gpus if tokens(known.model) <= tokens(gpu.name)}
        return models.pop() if len(models) == 1 else None


def working(host: Host) -> tuple[Gpu, ...]:
    """The GPUs that the driver could talk to."""
    return tuple(gpu for gpu in host.gpus if gpu.fault is None)


def exactly(value: float) -> Interval:
    """A counted or reported quantity, which has no spread."""
    return Interval(value=value, low=value, high=value)


def _lost_gpus(host: Host) -> Iterator[Finding]:
    for gpu in host.gpus:
        if gpu.fault is not None:
            text = f"GPU {gpu.index} does not answer: the driver says {gpu.fault.rstrip('.')!r}"
            yield Finding(name="lost-gpu", hostname=host.hostname, text=text)


def _limits(host: Host) -> Iterator[Finding]:
    limits = host.limits
    if limits is None:
        return
    if limits.cpus is not None and host.cores is not None and limits.cpus < host.cores:
        text = (
            f"a control group allows {limits.cpus:g} CPUs of the {host.cores} cores: more processes than "
            "that wait for each other"
        )
        cores = Fact(value=host.cores, unit="count", about="cores this process may use")
        yield unlike(cores, exactly(limits.cpus), "cpu-limit", text, host)
    if limits.memory_bytes is not None and host.memory_bytes and limits.memory_bytes < host.memory_bytes:
        text = (
            f"a control group allows {format_bytes(limits.memory_bytes)} of the "
            f"{format_bytes(host.memory_bytes)} of memory"
        )
        memory = Fact(value=host.memory_bytes, unit="bytes", about="installed memory")
        yield unlike(memory, exactly(limits.memory_bytes), "memory-limit", text, host)


def _steal(host: Host) -> Iterator[Finding]:
    stolen = host.steal_fraction
    if stolen is not None and stolen > STEAL:
        yield Finding(
            name="steal",
            hostname=host.hostname,
            text=f"other tenants took {stolen:.1%} of the CPU time while this was measured (steal); expect slower "
            "and less even steps than on a dedicated machine",
            unit="fraction",
            measured=exactly(stolen),
        )


def _counts(host: Host, reference: Instance) -> Iterator[Finding]:
    gpus = float(len(working(host)))
    count = float(reference.devices) if reference.gpu_count else None  # a slice of one is a GPU to a driver
    promised = fact_of(reference, "GPUs", count, "count")
    if promised is not None and gpus != promised.value:
        text = f"{gpus:g} GPUs work here, {reference.name} has {promised.value:g} {origin(promised)}"
        yield unlike(promised, exactly(gpus), "gpu-count", text, host)
    vcpus = fact_of(reference, "vCPUs", reference.vcpus, "count")
    if vcpus is not None and host.cores is not None and host.cores != vcpus.value:
        text = f"this process may use {host.cores} cores, {reference.name} has {vcpus.value:g} vCPUs {origin(vcpus)}"
        yield unlike(vcpus, exactly(host.cores), "vcpu-count", text, host)


def _gpu_model(host: Host, reference: Instance, catalog: Catalog) -> Iterator[Finding]:
    named = ((gpu, model_of(gpu, catalog)) for gpu in working(host))
    others = Counter(gpu.name for gpu, model in named if model is not None and model != reference.gpu_model)
    if others and reference.gpu_model is not None:
        here = listed([f"{count} × {name}" for name, count in others.items()])
        source = f"(catalog of {reference.as_of}: {reference.source})"
        text = f"the GPUs are {here}, {reference.name} has {reference.gpu_model} {source}"
        yield Finding(name="gpu-model", hostname=host.hostname, text=text)


def _memory(host: Host, reference: Instance) -> Iterator[Finding]:
    promised = fact_of(reference, "memory", reference.memory_bytes, "bytes")
    sizes = [gpu.memory_bytes for gpu in working(host) if gpu.memory_bytes is not None]
    per_gpu = fact_of(reference, "memory per GPU", reference.gpu_memory_bytes, "bytes")
    pairs = (
        ("memory", "this machine has", host.memory_bytes, promised),
        ("gpu-memory", "the smallest GPU has", min(sizes, default=None), per_gpu),
    )
    for name, has, size, fact in pairs:
        if size is None or fact is None or abs(size / fact.value - 1) <= _MEMORY_TOLERANCE:
            continue
        text = f"{has} {format_bytes(size)} of memory, {fact.about} is {plain(fact.value, 'bytes')} {origin(fact)}"
        yield unlike(fact, exactly(size), name, text, host)


def _rdma(host: Host, reference: Instance) -> Iterator[Finding]:
    # Without any network interface seen nothing was looked at, so nothing can be missing.
    if reference.rdma and host.nics and not any(nic.rdma for nic in host.nics):
        fact = fact_of(reference, "RDMA", reference.rdma_bytes_per_second, "bytes/s")
        text = (
            f"there is no RDMA device, {reference.name} can have one (catalog of {reference.as_of}: "
            f"{reference.source}): it may have to be chosen when the machine is rented, or its driver is missing"
        )
        yield Finding(name="no-rdma", hostname=host.hostname, text=text, fact=fact)


# Network ---------------------------------------------------------------------------------------------------
# Findings about the network between machines: one flow against several, slow nodes, claims of the interface.
#
# Reads the streams of all hosts together. Knows what a machine's interface claims; what its type promises is
# ``shortfall``'s.

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


def by_flows(hosts: Sequence[Host]) -> dict[int, Flows]:
    """Rates of all streams, by number of flows, then by (source, target)."""
    found: dict[int, Flows] = {}
    for host in hosts:
        for stream in host.links.streams if host.links is not None else ():
            rate = stream_rate(stream)
            if rate is not None:
                found.setdefault(stream.flows, {})[stream.source, stream.target] = rate
    return found


def reach(hosts: Sequence[Host]) -> Reach | None:
    """The fastest stream of all and what one flow does between the same nodes; ``None`` without streams."""
    rates = by_flows(hosts)
    streams = [(rate.value, flows, pair) for flows, pairs in rates.items() for pair, rate in pairs.items()]
    if not streams:
        return None
    _, flows, pair = max(streams)
    return Reach(source=pair[0], target=pair[1], one=rates.get(1, {}).get(pair), best=rates[flows][pair], flows=flows)


def network_findings(hosts: Sequence[Host]) -> Iterator[Finding]:
    """Findings from the streams between nodes."""
    rates = by_flows(hosts)
    fastest = reach(hosts)
    if fastest is None:
        return
    yield from _one_flow(fastest)
    # With several flows the machines and the wire show, with one flow its TCP window too.
    yield from _uneven_nodes(hosts, rates[max(rates)])
    yield from _claims(hosts, fastest)


def _one_flow(fastest: Reach) -> Iterator[Finding]:
    one, best = fastest.one, fastest.best
    if one is None or fastest.flows == 1 or not one.slower_than(best, SEVERAL_HELP):
        return
    text = (
        f"one TCP flow reaches {bits(one)}, {fastest.flows} reach {bits(best)} (node {fastest.source} to "
        f"{fastest.target}): exchange over one connection leaves part of the network unused"
    )
    fact = Fact(value=best.value, unit="bytes/s", about=f"{fastest.flows} flows between the same nodes")
    yield unlike(fact, one, "one-flow", text)


def _uneven_nodes(hosts: Sequence[Host], rates: Flows) -> Iterator[Finding]:
    uneven = unevenness(rates)
    if uneven is None:
        return
    fastest, slow = uneven
    sound = {node for pair in rates if pair not in slow for node in pair}
    blamed = [node for node in sorted({node for pair in slow for node in pair}) if node not in sound]
    who = f"node{'s' if len(blamed) > 1 else ''} {listed([_named(hosts, node) for node in blamed])}"
    verb = "have" if len(blamed) > 1 else "has"
    start = f"{who} {verb} a slower network than the others" if blamed else "some nodes reach each other more slowly"
    worst = slow[0]
    text = (
        f"{start}: {bits(rates[worst])} from node {worst[0]} to {worst[1]}, {bits(rates[fastest])} from node "
        f"{fastest[0]} to {fastest[1]}; the slowest node sets the pace of every exchange"
    )
    fact = Fact(value=rates[fastest].value, unit="bytes/s", about=f"node {fastest[0]} to {fastest[1]}")
    only = hosts[blamed[0]] if len(blamed) == 1 and blamed[0] < len(hosts) else None
    yield unlike(fact, rates[worst], "uneven-nodes", text, only)


def _named(hosts: Sequence[Host], node: int) -> str:
    return f"{node} ({hosts[node].hostname})" if node < len(hosts) else str(node)


def claiming(host: Host) -> Nic | None:
    """The one interface with hardware or a hypervisor behind it that claims a rate; ``None`` if there are several.

    Bridges and virtual pairs inside a machine claim rates too, and mean nothing by it: they have no driver.
    """
    claims = [nic for nic in host.nics if nic.bytes_per_second is not None and nic.driver is not None]
    return claims[0] if len(claims) == 1 else None


def _claims(hosts: Sequence[Host], fastest: Reach) -> Iterator[Finding]:
    if fastest.source >= len(hosts):
        return
    host = hosts[fastest.source]
    nic = claiming(host)
    if nic is None or nic.bytes_per_second is None:
        return
    claim, best = nic.bytes_per_second, fastest.best
    fact = Fact(value=claim, unit="bytes/s", about=f"what {nic.name} claims")
    if best.above(claim):
        end = "so the claim means nothing"
    elif best.below(claim, _CLAIM_TOLERANCE):
        end = f"less than the {format_bits(claim)} it claims: the network behind it is limited, shared or far away"
    else:
        return
    text = f"{nic.name} claims {format_bits(claim)} and TCP reaches {bits(best)}, {end}"
    yield unlike(fact, best, "nic-claim", text, host)
