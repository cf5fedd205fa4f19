"""A cluster of instances of the catalog: what data sheets claim, times what collectives were seen to reach of it.

Knows how facts are read and nothing of what is predicted from them. What was measured of a machine comes before it.
"""

from __future__ import annotations

from functools import lru_cache

from stash.derive.predict.target import efficiency
from stash.derive.predict.target.cluster import Network, NetworkKind, NodeLinks, Storage, Target, Wiring
from stash.derive.predict.uncertainty.quantity import Quantity
from stash.keep.catalog import Instance
from stash.keep.catalog.shipped import rows


def of_instance(instance: Instance, nodes: int) -> Target:
    """``nodes`` of this type: what its data sheet claims times what collectives were seen to reach of such claims."""
    name = f"{nodes} × {instance.cloud}/{instance.name}"
    return _one_of(instance).model_copy(update={"name": name, "nodes": nodes})


@lru_cache(maxsize=4096)
def _one_of(instance: Instance) -> Target:
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
        network=sheet.network(),
        cores=sheet.fact(instance.vcpus),
        memory_bytes=sheet.fact(instance.memory_bytes),
        storage=Storage(
            bytes_per_second=sheet.fact(instance.remote_disk_bytes_per_second),
            burst_bytes_per_second=sheet.fact(instance.remote_disk_burst_bytes_per_second),
            remote=True,
            burst_seconds=_burst_seconds(instance.cloud),
        ),
    )


def _burst_seconds(cloud: str) -> Quantity | None:
    """How long a cloud's network disks keep up their burst rate; ``None`` where it does not say."""
    for row in rows("disk_bursts.csv"):
        if row["cloud"] == cloud:
            seconds = 60 * float(row["burst_minutes"])
            return Quantity(value=seconds, origin="data sheet", as_of=row["as_of"], source=row["source"])
    return None


class _Sheet:
    """An instance's data sheet as quantities."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    def fact(self, value: float | None) -> Quantity | None:
        if value is None:
            return None
        return Quantity(value=value, origin="data sheet", as_of=self._instance.as_of, source=self._instance.source)

    def inside(self) -> NodeLinks | None:
        """Links between devices; where only pairs are known, anything between the slowest and the fastest pair."""
        type_ = self._instance
        fabric = type_.interconnect or ""
        wiring: Wiring = "nvswitch" if "nvswitch" in fabric else "nvlink" if "nvlink" in fabric else "pcie"
        if wiring == "pcie":
            return NodeLinks(wiring=wiring, bytes_per_second=self._shared(type_.pcie_bytes_per_second, wiring))
        claimed = type_.interconnect_bytes_per_second
        if claimed is not None:
            return NodeLinks(wiring=wiring, bytes_per_second=self._shared(claimed, wiring))
        fastest = type_.pair_max_bytes_per_second
        rate = self._shared(fastest, wiring)
        slowest = type_.pair_min_bytes_per_second or type_.pcie_bytes_per_second
        worst = self._shared(slowest, "pcie")
        if rate is not None and worst is not None and worst.low is not None:
            # Which of the mesh's links a machine gets is not documented: a ring may have to take the worst.
            rate = rate.model_copy(update={"low": min(worst.low, rate.value)})
        return NodeLinks(wiring=wiring, bytes_per_second=rate)

    def network(self) -> Network | None:
        type_ = self._instance
        remote = type_.rdma_bytes_per_second if type_.rdma else None
        transport: NetworkKind = "tcp" if remote is None else "efa" if type_.cloud == "aws" else "infiniband"
        rate = network_rate(self.fact(remote or type_.network_bytes_per_second), transport)
        return None if rate is None else Network(transport=transport, bytes_per_second=rate)

    def _shared(self, claimed: float | None, wiring: Wiring) -> Quantity | None:
        fact, share = self.fact(claimed), efficiency.reached(wiring)
        return None if fact is None or share is None else reach_of(fact, share)


def network_rate(claimed: Quantity | None, transport: NetworkKind, without: str | None = None) -> Quantity | None:
    """What collectives reach of a line between nodes: its share, and with sockets no more than those can do.

    ``without`` leaves out one source of published collectives; a faster line never carries less.
    """
    if claimed is None:
        return None
    share = efficiency.reached(transport, without)
    limit = efficiency.socket_limit(without) if transport == "tcp" else None
    rate = None if share is None else reach_of(claimed, share)
    if limit is None:
        return rate
    if rate is None:  # nobody else saw a line that sockets can fill
        rate = claimed.model_copy(update={"low": claimed.value, "high": claimed.value})
    ends = (
        None if a is None or b is None else min(a, b) for a, b in ((rate.low, limit.low), (rate.high, limit.high))
    )
    return _of_claim(rate, limit, min(rate.value, limit.value), *ends)


def reach_of(claimed: Quantity, share: Quantity) -> Quantity:
    """A claim times the share of such claims that is reached."""
    ends = (None if end is None else claimed.value * end for end in (share.low, share.high))
    return _of_claim(claimed, share, claimed.value * share.value, *ends)


def _of_claim(claimed: Quantity, seen: Quantity, value: float, low: float | None, high: float | None) -> Quantity:
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
