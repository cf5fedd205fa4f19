"""Where a cluster's facts come from: the catalog's data sheets, a probe, or the profile itself.

What was measured of a machine comes before what is claimed of it, measured all-reduces before TCP streams, and what a
control group allows before what a disk can do. Nothing is predicted here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from stash.analysis.breakdown import ranks_per_node
from stash.analysis.findings.against import measured_figures as best_links
from stash.analysis.findings.rates import Curve, bus_factor, make_curve
from stash.catalog.facts import Instance, share_of
from stash.catalog.shipped import gpus
from stash.core.intervals import Interval, median_interval
from stash.core.measured import Collective
from stash.core.records.host import Host, Probe
from stash.core.records.profile import Profile
from stash.predict import cluster
from stash.predict.cluster import (
    Backend,
    Network,
    NetworkKind,
    NodeLinks,
    NodeTransport,
    Storage,
    Target,
    Wiring,
)
from stash.predict.draws import Quantity, measured_quantity

_LEAST_OF_STORAGE = 0.5
"""Of a rate that storage is sold with."""


def target_of_instance(
    instance: Instance, nodes: int, transport: NodeTransport = "sockets"
) -> Target:
    """``nodes`` of this type: what its data sheet claims times what collectives were seen to reach of such claims.

    Over sockets, which need no set-up; with ``rdma`` over EFA or InfiniBand where the type has one.
    """
    name = f"{nodes} × {instance.cloud}/{instance.name}"
    return _single_node(instance, transport == "rdma").model_copy(
        update={"name": name, "nodes": nodes}
    )


@lru_cache(maxsize=4096)
def _single_node(instance: Instance, remote: bool) -> Target:
    sheet, devices = _Sheet(instance), instance.devices
    return Target(
        name=instance.name,
        nodes=1,
        devices=devices,
        backend="nccl" if instance.gpu_count else "gloo",
        machine=instance.name.lower(),
        device=instance.gpu or instance.gpu_model,
        device_share=instance.gpu_share,
        device_memory_bytes=sheet.fact(instance.gpu_memory_bytes),
        inside=sheet.inside() if devices > 1 else None,
        network=sheet.network(remote),
        cores=sheet.fact(instance.vcpus),
        memory_bytes=sheet.fact(instance.memory_bytes),
        storage=Storage(
            bytes_per_second=sheet.storage(instance.remote_disk_bytes_per_second),
            burst_bytes_per_second=sheet.storage(instance.remote_disk_burst_bytes_per_second),
        ),
    )


class _Sheet:
    """An instance's data sheet as quantities."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def fact(self, value: float | None) -> Quantity | None:
        if value is None:
            return None
        return Quantity(
            value=value,
            origin="data sheet",
            as_of=self._instance.as_of,
            source=self._instance.source,
        )

    def storage(self, claimed: float | None) -> Quantity | None:
        """A rate that is sold: loaders get from half of it to all, which is an assumption, as nobody published it."""
        fact = self.fact(claimed)
        if fact is None:
            return None
        ends = {"low": _LEAST_OF_STORAGE * fact.value, "high": fact.value}
        return fact.model_copy(
            update={**ends, "source": f"{fact.source}; from half of it to all: an assumption"}
        )

    def inside(self) -> NodeLinks | None:
        """Links between devices; where only pairs are known, anything between the slowest and the fastest pair."""
        type_ = self._instance
        fabric = type_.interconnect or ""
        wiring: Wiring = (
            "nvswitch" if "nvswitch" in fabric else "nvlink" if "nvlink" in fabric else "pcie"
        )
        if wiring == "pcie":
            return NodeLinks(
                wiring=wiring,
                bytes_per_second=self.reachable_rate(type_.pcie_bytes_per_second, wiring),
            )
        claimed = type_.interconnect_bytes_per_second
        if claimed is not None:
            return NodeLinks(wiring=wiring, bytes_per_second=self.reachable_rate(claimed, wiring))
        fastest = type_.pair_max_bytes_per_second
        rate = self.reachable_rate(fastest, wiring)
        slowest = type_.pair_min_bytes_per_second or type_.pcie_bytes_per_second
        worst = self.reachable_rate(slowest, "pcie")
        if rate is not None and worst is not None and worst.low is not None:
            # Which of the mesh's links a machine gets is not documented: a ring may have to take the worst.
            rate = rate.model_copy(update={"low": min(worst.low, rate.value)})
        return NodeLinks(wiring=wiring, bytes_per_second=rate)

    def network(self, remote: bool) -> Network | None:
        type_ = self._instance
        bare = (
            bool(type_.gpu_count)
            and "nvlink" not in (type_.interconnect or "")
            and not cluster.links_of_gpu(type_.gpu)
        )
        direct = type_.rdma_bytes_per_second if remote and type_.rdma else None
        pcie = type_.devices if bare else None
        transport: NetworkKind = (
            "tcp" if direct is None else "efa" if type_.cloud == "aws" else "infiniband"
        )
        rate = network_rate(
            self.fact(direct or type_.network_bytes_per_second), transport, pcie=pcie
        )
        return None if rate is None else Network(transport=transport, bytes_per_second=rate)

    def reachable_rate(self, claimed: float | None, wiring: Wiring) -> Quantity | None:
        link = cluster.inside_link(wiring, self._instance.gpu or self._instance.gpu_model)
        fact, share = self.fact(claimed), cluster.reached_share(link)
        return None if fact is None or share is None else reach_of(fact, share)


def network_rate(
    claimed: Quantity | None,
    transport: NetworkKind,
    without: str | None = None,
    pcie: int | None = None,
) -> Quantity | None:
    """What collectives reach of a line between nodes: its share, and with sockets no more than those can do.

    ``without`` leaves out one source of published collectives; ``pcie``: devices of machines whose GPUs have no
    links of their own. A faster line never carries less.
    """
    if claimed is None:
        return None
    share = cluster.reached_share(transport, without)
    limit = None
    if transport == "tcp":
        limit = (pcie and cluster.pcie_socket_limit(pcie, without)) or cluster.socket_limit(without)
    rate = None if share is None else reach_of(claimed, share)
    if limit is None:
        return rate
    if rate is None:  # no other published line is one that sockets can fill
        rate = claimed.model_copy(update={"low": claimed.value, "high": claimed.value})
    ends = (
        None if a is None or b is None else min(a, b)
        for a, b in ((rate.low, limit.low), (rate.high, limit.high))
    )
    return _merge_sources(rate, limit, min(rate.value, limit.value), *ends)


def reach_of(claimed: Quantity, share: Quantity) -> Quantity:
    """A claim times the share of such claims that is reached."""
    ends = (None if end is None else claimed.value * end for end in (share.low, share.high))
    return _merge_sources(claimed, share, claimed.value * share.value, *ends)


def _merge_sources(
    claimed: Quantity, seen: Quantity, value: float, low: float | None, high: float | None
) -> Quantity:
    """What is reached of a claim, with the sources of both, each once: who claims it, and who saw what is reached."""
    sources = dict.fromkeys([*claimed.source.split("; "), *seen.source.split("; ")])
    return Quantity(
        value=value,
        low=low,
        high=high,
        origin="data sheet",
        as_of=claimed.as_of or seen.as_of,
        source="; ".join(sources),
    )


# From a probe


def target_of_probe(probe: Probe) -> Target:
    """The machines that were probed."""
    host = probe.hosts[0]
    backend: Backend = "nccl" if host.gpus else "gloo"
    count = len(probe.hosts)
    name = f"{count} × {host.instance or host.hostname}, probed on {probe.created[:10]}"
    links = links_of(probe.hosts, backend)
    return _target_of_hosts(
        probe.hosts, probe.created, backend, *links, name, count, max(1, len(host.gpus))
    )


def _target_of_hosts(
    hosts: Sequence[Host],
    created: str,
    backend: Backend,
    inside: NodeLinks | None,
    network: Network | None,
    name: str,
    nodes: int,
    devices: int,
) -> Target:
    """With what the first of the machines counted of itself."""
    host = hosts[0] if hosts else None
    gpus = () if host is None else host.gpus
    return Target(
        name=name,
        nodes=nodes,
        devices=devices,
        backend=backend,
        machine=machine_of(host),
        device=gpus[0].name if gpus and backend == "nccl" else None,
        device_share=device_share_of(host),
        device_memory_bytes=_exact_quantity(
            min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=None), created
        ),
        inside=inside,
        network=network,
        cores=None if host is None else _exact_quantity(usable_threads(host), created),
        memory_bytes=None if host is None else _exact_quantity(usable_memory(host), created),
        storage=storage_of(hosts, created),
    )


def links_of(hosts: Sequence[Host], backend: Backend) -> tuple[NodeLinks | None, Network | None]:
    """From probed all-reduces inside node 0 and between nodes; TCP streams where no all-reduce crossed."""
    if not hosts or hosts[0].links is None:
        return None, None
    as_of, source = hosts[0].links.created[:10], f"probe of {hosts[0].links.created[:10]}"
    curves = [
        make_curve(each, hosts[0].hostname)
        for each in hosts[0].links.exchanges
        if each.backend == backend
    ]
    alone = next((each for each in curves if each.nodes == 1 and each.sizes), None)
    apart = next((each for each in curves if each.nodes > 1 and each.sizes), None)
    inside = network = None
    if alone is not None:
        figures = _curve_bandwidth(alone), _curve_latency(alone)
        inside = NodeLinks(**_measured_link(*figures, as_of, source))
    reached = best_links(hosts, 0).network
    if apart is not None:
        figures = _curve_bandwidth(apart), _curve_latency(apart)
        network = Network(**_measured_link(*figures, as_of, source))
    elif reached is not None:
        flows = f"{source}, {reached.flows} TCP flows"
        network = Network(transport="tcp", **_measured_link(reached.best, None, as_of, flows))
    return inside, network


def _measured_link(
    rate: Interval, latency: Interval | None, as_of: str, source: str
) -> dict[str, Any]:
    """Fields of ``NodeLinks`` or ``Network``."""
    return {
        "bytes_per_second": measured_quantity(rate, as_of, source),
        "latency_seconds": latency and measured_quantity(latency, as_of, source),
    }


def _curve_bandwidth(curve: Curve) -> Interval:
    """Of the fit with its standard errors, or of the largest message where the curve is no α–β."""
    if curve.fit is None or not curve.fit.is_alpha_beta:
        return curve.sizes[-1].bus_bytes_per_second
    rate, arm = curve.fit.bytes_per_second, 1.96 * curve.fit.bytes_per_second_error
    # On a logarithmic scale: an error as large as the rate must not reach below 0.
    return Interval(
        value=rate, low=rate * float(np.exp(-arm / rate)), high=rate * float(np.exp(arm / rate))
    )


def _curve_latency(curve: Curve) -> Interval | None:
    """α with its standard error; ``None`` where small messages were too noisy to show one."""
    if curve.fit is None or curve.fit.alpha_seconds <= 0:
        return None
    alpha = curve.fit.alpha_seconds
    factor = float(np.exp(1.96 * curve.fit.alpha_error / alpha))
    return Interval(value=alpha, low=alpha / factor, high=alpha * factor)


def _exact_quantity(value: float | None, created: str) -> Quantity | None:
    if value is None:
        return None
    # What a machine counts of itself is exact.
    return measured_quantity(
        Interval(value=value, low=value, high=value), created[:10], "the machine itself"
    )


def usable_threads(host: Host) -> float | None:
    """Hardware threads' worth of time that a job may use."""
    limit = host.limits.cpus if host.limits is not None else None
    return min((count for count in (host.cores, limit) if count), default=None)


def usable_memory(host: Host) -> int | None:
    """Bytes that a job may use, its files in the page cache among them."""
    limit = host.limits.memory_bytes if host.limits is not None else None
    return min((size for size in (host.memory_bytes, limit) if size), default=None)


def machine_of(host: Host | None) -> str | None:
    """Its instance type, else its own name: ``None`` where every machine may be called so."""
    if host is None:
        return None
    nameless = host.hostname in ("", "localhost", "ubuntu", "debian")
    named = host.instance or (None if nameless else host.hostname)
    return None if named is None else named.lower()


def device_share_of(host: Host | None) -> float:
    """Of a whole GPU that the driver's first one is: below 1 for a slice, as its memory shows."""
    if host is None or not host.gpus:
        return 1.0
    return share_of(host.gpus[0].name, host.gpus[0].memory_bytes, gpus())


def storage_of(hosts: Sequence[Host], created: str) -> Storage | None:
    """The disk under the data: as probed, and never above what a control group lets it do."""
    if not hosts:
        return None
    limits, best = hosts[0].limits, best_links(hosts, 0).disk
    limit = limits.read_bytes_per_second if limits is not None else None
    if limit is not None and (best is None or limit < best.value):
        return Storage(bytes_per_second=_exact_quantity(limit, created))
    if best is None or hosts[0].links is None:
        return None
    as_of = hosts[0].links.created[:10]
    return Storage(bytes_per_second=measured_quantity(best, as_of, f"probe of {as_of}"))


# From a profile

_LATENT = 0.9
"""Of an exchange's time: if its latency alone takes more, its bytes take too little to tell a rate from."""


def target_of_profile(profile: Profile) -> Target:
    """The cluster that was profiled, as its own exchange and its hosts' probed links tell it."""
    devices = max(ranks_per_node(profile).values(), default=1)
    backend: Backend = "gloo" if profile.is_on_cpu else "nccl"
    own, probed = _own_links(profile, devices), links_of(profile.hosts, backend)
    links = own[0] or probed[0], own[1] or probed[1]
    name = f"as profiled on {profile.created[:10]}"
    return _target_of_hosts(
        profile.hosts, profile.created, backend, *links, name, profile.nodes, devices
    )


def _own_links(profile: Profile, devices: int) -> tuple[NodeLinks | None, Network | None]:
    """What the gradient exchange run by itself tells of the links inside a node, and between nodes."""
    buckets = max(1, len(profile.workload.bucket_bytes))
    timed = [
        run for run in profile.collectives if run.ranks > 1 and run.seconds > 0 and run.bytes > 0
    ]
    here, everywhere = ([run for run in timed if run.scope == at] for at in ("node", "world"))
    about = profile.created[:10], "the profile's own exchange"
    inside = network = None
    hop = 0.0  # seconds of one inside a node
    if devices > 1 and here:
        latency = _exchange_latency(here, buckets)
        if latency is not None:
            latency = latency.scale(1 / (2 * (devices - 1)))
            hop = latency.value
        inside = NodeLinks(**_measured_link(_exchange_bandwidth(here), latency, *about))
    if profile.nodes > 1 and everywhere:
        latency = _exchange_latency(everywhere, buckets)
        if latency is not None:
            # Of one hop between nodes: what the hops inside nodes leave of a ring's latency, shared among 2(N−1).
            ranks = profile.nodes * devices
            left = 1 - 2 * (ranks - profile.nodes) * hop / latency.value
            # Where hops inside take all of it, nothing distinguishes the two kinds.
            share = 1 / (2 * (ranks - 1)) if left <= 0 else left / (2 * (profile.nodes - 1))
            latency = latency.scale(share)
        network = Network(**_measured_link(_exchange_bandwidth(everywhere), latency, *about))
    return inside, network


def _exchange_bandwidth(runs: Sequence[Collective]) -> Interval:
    """Bus bandwidth of the exchanges' bytes, their latency left out where it is known and not nearly all of it."""
    rates = []
    for run in runs:
        latency = run.latency_seconds or 0.0
        seconds = run.seconds - latency if latency < _LATENT * run.seconds else run.seconds
        rates.append(bus_factor(run.ranks) * run.bytes / seconds)
    return median_interval(rates)


def _exchange_latency(runs: Sequence[Collective], buckets: int) -> Interval | None:
    """Seconds of one collective without bytes; ``None`` where it was not measured."""
    known = [run.latency_seconds / buckets for run in runs if run.latency_seconds]
    return median_interval(known) if known else None
