"""The cluster that was profiled: its own exchange tells what its links carry for just this job.

Where it exchanged nothing, what was probed of its hosts stands in. Knows how facts are read and nothing of what is
predicted from them.
"""

from __future__ import annotations

from collections.abc import Sequence

from stash.base.records import Collective, Profile
from stash.base.stats.intervals import Interval, median_interval
from stash.derive.findings.allreduce import bus_factor
from stash.derive.predict.target.cluster import Network, NodeLinks, Target
from stash.derive.predict.target.from_probe import (
    cores_of,
    device_memory_of,
    device_share_of,
    links_of,
    machine_of,
    memory_of,
    storage_of,
)
from stash.derive.predict.uncertainty.quantity import measured
from stash.derive.stalls.missing import ranks_per_node

_LATENT = 0.9
"""Of an exchange's time: if its latency alone takes more, its bytes take too little to tell a rate from."""


def of_profile(profile: Profile) -> Target:
    """The cluster that was profiled, as its own exchange and its hosts' probed links tell it."""
    name = f"as profiled on {profile.created[:10]}"
    devices = max(ranks_per_node(profile).values(), default=1)
    on_cpu = all(rank.device == "cpu" for rank in profile.ranks)
    inside, network = _own_links(profile, devices)
    host = profile.hosts[0] if profile.hosts else None
    probed = links_of(profile.hosts, profile.created, "gloo" if on_cpu else "nccl")
    return Target(
        name=name,
        nodes=profile.nodes,
        devices=devices,
        backend="gloo" if on_cpu else "nccl",
        machine=machine_of(host),
        device=None if on_cpu or host is None or not host.gpus else host.gpus[0].name,
        device_share=device_share_of(host),
        device_memory_bytes=device_memory_of(host, profile.created),
        inside=inside or probed[0],
        network=network or probed[1],
        cores=cores_of(host, profile.created),
        memory_bytes=memory_of(host, profile.created),
        storage=storage_of(profile.hosts, profile.created),
    )


def _own_links(profile: Profile, devices: int) -> tuple[NodeLinks | None, Network | None]:
    """What the gradient exchange run by itself tells of the links inside a node, and between nodes."""
    buckets = max(1, len(profile.workload.bucket_bytes))
    timed = [run for run in profile.collectives if run.ranks > 1 and run.seconds > 0 and run.bytes > 0]
    of_scope = {scope: [run for run in timed if run.scope == scope] for scope in ("node", "world")}
    source, as_of = "the profile's own exchange", profile.created[:10]
    inside = network = None
    hop = 0.0
    if devices > 1 and of_scope["node"]:
        latency = _latency(of_scope["node"], buckets)
        if latency is not None:
            latency = latency.scaled(1 / (2 * (devices - 1)))
            hop = latency.value
        rate = measured(_rate(of_scope["node"]), as_of, source)
        inside = NodeLinks(bytes_per_second=rate, latency_seconds=latency and measured(latency, as_of, source))
    if profile.nodes > 1 and of_scope["world"]:
        latency = _latency(of_scope["world"], buckets)
        if latency is not None:
            latency = _between(latency, profile.nodes, devices, hop)
        network = Network(
            bytes_per_second=measured(_rate(of_scope["world"]), as_of, source),
            latency_seconds=latency and measured(latency, as_of, source),
        )
    return inside, network


def _rate(runs: Sequence[Collective]) -> Interval:
    """Bus bandwidth of the exchanges' bytes, their latency left out where it is known and not nearly all of it."""
    rates = []
    for run in runs:
        latency = run.latency_seconds or 0.0
        seconds = run.seconds - latency if latency < _LATENT * run.seconds else run.seconds
        rates.append(bus_factor(run.ranks) * run.bytes / seconds)
    return median_interval(rates)


def _latency(runs: Sequence[Collective], buckets: int) -> Interval | None:
    """Seconds of one collective without bytes; ``None`` where nobody measured it."""
    known = [run.latency_seconds / buckets for run in runs if run.latency_seconds]
    return median_interval(known) if known else None


def _between(latency: Interval, nodes: int, devices: int, hop: float) -> Interval:
    """Of one hop between nodes: what the hops inside nodes leave of a ring's latency, shared among 2(N−1)."""
    ranks = nodes * devices
    left = 1 - 2 * (ranks - nodes) * hop / latency.value
    if left <= 0:  # hops inside take all of it: then nothing tells the two kinds apart
        return latency.scaled(1 / (2 * (ranks - 1)))
    return latency.scaled(left / (2 * (nodes - 1)))
