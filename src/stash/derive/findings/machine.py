"""Findings about what one machine is: lost GPUs, limits on its cores and memory, stolen time, its type's promises.

Reads the identity of a host and, if its type is known, the catalog's facts about it. What either leaves open is
passed over in silence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stash.base.errors import UserError
from stash.base.records import Gpu, Host
from stash.base.stats.intervals import Interval
from stash.base.words.quantities import listed, plain
from stash.base.words.units import format_bytes
from stash.derive.findings.finding import Fact, Finding, fact_of, origin, unlike
from stash.keep.catalog import Catalog, Instance
from stash.keep.catalog.names import tokens

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
