"""The cluster that was probed, and what any profiled or probed host tells of itself.

Measured all-reduces come before TCP streams, and what a control group allows before what a disk can do. Each fact
keeps where it comes from. Knows how facts are read and nothing of what is predicted from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.base.records import Host, Probe
from stash.base.stats.intervals import Interval
from stash.derive.findings.against import measured as best_links
from stash.derive.findings.allreduce import Curve, curve
from stash.derive.predict.target.cluster import Backend, Network, NodeLinks, Storage, Target
from stash.derive.predict.uncertainty.quantity import Quantity, measured
from stash.keep.catalog.shipped import gpus
from stash.keep.catalog.slices import share_of

_ANYBODY = ("", "localhost", "ubuntu", "debian")


def of_probe(probe: Probe, nodes: int | None = None) -> Target:
    """``nodes`` machines like those that were probed, by default as many."""
    host = probe.hosts[0]
    backend: Backend = "nccl" if host.gpus else "gloo"
    inside, network = links_of(probe.hosts, probe.created, backend)
    count = len(probe.hosts) if nodes is None else nodes
    return Target(
        name=f"{count} × {host.instance or host.hostname}, probed on {probe.created[:10]}",
        nodes=count,
        devices=max(1, len(host.gpus)),
        backend=backend,
        machine=machine_of(host),
        device=host.gpus[0].name if host.gpus else None,
        device_share=device_share_of(host),
        device_memory_bytes=device_memory_of(host, probe.created),
        inside=inside,
        network=network,
        cores=cores_of(host, probe.created),
        memory_bytes=memory_of(host, probe.created),
        storage=storage_of(probe.hosts, probe.created),
    )


def links_of(hosts: Sequence[Host], created: str, backend: Backend) -> tuple[NodeLinks | None, Network | None]:
    """From probed all-reduces inside node 0 and between nodes; TCP streams where no all-reduce crossed."""
    if not hosts or hosts[0].links is None:
        return None, None
    as_of, source = hosts[0].links.created[:10], f"probe of {hosts[0].links.created[:10]}"
    curves = [curve(each, hosts[0].hostname) for each in hosts[0].links.exchanges if each.backend == backend]
    alone = next((each for each in curves if each.nodes == 1 and each.sizes), None)
    apart = next((each for each in curves if each.nodes > 1 and each.sizes), None)
    inside = network = None
    if alone is not None:
        inside = NodeLinks(
            bytes_per_second=measured(_bandwidth(alone), as_of, source), latency_seconds=_hop(alone, as_of, source)
        )
    if apart is not None:
        network = Network(
            bytes_per_second=measured(_bandwidth(apart), as_of, source), latency_seconds=_hop(apart, as_of, source)
        )
    else:
        reached = best_links(hosts, 0).network
        if reached is not None:
            flows = f"{source}, {reached.flows} TCP flows"
            network = Network(transport="tcp", bytes_per_second=measured(reached.best, as_of, flows))
    return inside, network


def _bandwidth(found: Curve) -> Interval:
    """Of the fit with its standard errors, or of the largest message where the curve is no α–β."""
    if found.fit is None or not found.fit.is_alpha_beta:
        return found.sizes[-1].bus_bytes_per_second
    rate, arm = found.fit.bytes_per_second, 1.96 * found.fit.bytes_per_second_error
    # On a logarithmic scale: an error as large as the rate must not reach below 0.
    return Interval(value=rate, low=rate * float(np.exp(-arm / rate)), high=rate * float(np.exp(arm / rate)))


def _hop(found: Curve, as_of: str, source: str) -> Quantity | None:
    """α with its standard error; ``None`` where small messages were too noisy to show one."""
    if found.fit is None or found.fit.alpha_seconds <= 0:
        return None
    alpha = found.fit.alpha_seconds
    factor = float(np.exp(1.96 * found.fit.alpha_error / alpha))
    return measured(Interval(value=alpha, low=alpha / factor, high=alpha * factor), as_of, source)


def _seen(value: float | None, created: str) -> Quantity | None:
    if value is None:
        return None
    # What a machine counts of itself is exact.
    return measured(Interval(value=value, low=value, high=value), created[:10], "the machine itself")


def cores_of(host: Host | None, created: str) -> Quantity | None:
    if host is None:
        return None
    limit = host.limits.cpus if host.limits is not None else None
    counts = [count for count in (host.cores, limit) if count]
    return _seen(min(counts) if counts else None, created)


def memory_of(host: Host | None, created: str) -> Quantity | None:
    if host is None:
        return None
    limit = host.limits.memory_bytes if host.limits is not None else None
    sizes = [size for size in (host.memory_bytes, limit) if size]
    return _seen(min(sizes) if sizes else None, created)


def machine_of(host: Host | None) -> str | None:
    """Its instance type, else its own name: ``None`` where every machine may be called so."""
    if host is None:
        return None
    named = host.instance or (None if host.hostname in _ANYBODY else host.hostname)
    return None if named is None else named.lower()


def device_share_of(host: Host | None) -> float:
    """Of a whole GPU that the driver's first one is: below 1 for a slice, as its memory shows."""
    if host is None or not host.gpus:
        return 1.0
    return share_of(host.gpus[0].name, host.gpus[0].memory_bytes, gpus())


def device_memory_of(host: Host | None, created: str) -> Quantity | None:
    sizes = [gpu.memory_bytes for gpu in host.gpus if gpu.memory_bytes] if host is not None else []
    return _seen(min(sizes) if sizes else None, created)


def storage_of(hosts: Sequence[Host], created: str) -> Storage | None:
    """The disk under the data: as probed, and never above what a control group lets it do."""
    if not hosts:
        return None
    limits, best = hosts[0].limits, best_links(hosts, 0).disk
    limit = limits.read_bytes_per_second if limits is not None else None
    if limit is not None and (best is None or limit < best.value):
        return Storage(bytes_per_second=_seen(limit, created))
    if best is None or hosts[0].links is None:
        return None
    as_of = hosts[0].links.created[:10]
    return Storage(bytes_per_second=measured(best, as_of, f"probe of {as_of}"))
