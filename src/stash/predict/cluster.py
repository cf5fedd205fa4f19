"""The cluster that a forecast is made for: nodes, links, cores, disks; and what collectives reach of a data sheet.

An unknown fact is ``None``, and what depends on it is unknown, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from stash.catalog.facts import found_by_name
from stash.catalog.reference import CollectiveRate, collective_rates, hop_latencies
from stash.catalog.shipped import gpus
from stash.core.distributions import student_quantile
from stash.core.records.base import Record
from stash.predict.draws import Array, Quantity

Wiring = Literal["nvswitch", "nvlink", "pcie"]
"""Between devices of a node: through switches, direct pairs, or PCIe and its switches."""
NetworkKind = Literal["tcp", "efa", "infiniband"]
"""How nodes talk: sockets, AWS's EFA, or InfiniBand and RoCE."""
NodeTransport = Literal["sockets", "rdma"]
"""What is asked for: TCP sockets, or what the machine has that passes the kernel by, EFA or InfiniBand."""
TRANSPORTS: dict[str, NodeTransport] = {
    "sockets": "sockets",
    "tcp": "sockets",
    "efa": "rdma",
    "infiniband": "rdma",
    "ib": "rdma",
    "roce": "rdma",
    "rdma": "rdma",
}
CALLED: dict[NetworkKind, str] = {"tcp": "sockets", "efa": "EFA", "infiniband": "InfiniBand"}
Backend = Literal["nccl", "gloo"]


class NodeLinks(Record):
    """What a collective inside one node finds."""

    wiring: Wiring | None = None
    bytes_per_second: Quantity | None = None
    """Bus bandwidth of an all-reduce over all devices (nccl-tests' definition); ``None`` if unknown."""
    latency_seconds: Quantity | None = None
    """Of one hop of a ring: 2(p−1) of them are a ring all-reduce without bytes."""


class Network(Record):
    """What a collective between nodes finds at one node."""

    transport: NetworkKind | None = None
    bytes_per_second: Quantity | None = None
    """Of all interfaces of a node together, one direction, as collectives reach it; ``None`` if unknown."""
    latency_seconds: Quantity | None = None
    """Of one hop between nodes."""


class Storage(Record):
    """Where a node's data lie."""

    bytes_per_second: Quantity | None = None
    """Sustained, of all readers of a node together."""
    burst_bytes_per_second: Quantity | None = None
    """At first, until its credits are spent."""


class Target(Record):
    """A cluster of equal nodes."""

    name: str
    """To be named in reports, e.g. ``"2 × aws/p3.8xlarge"``."""
    nodes: int
    devices: int
    """Of a node; ranks, one each."""
    backend: Backend
    machine: str | None = None
    """What its nodes are, in small letters: an instance type, else a host's name; ``None`` if unstated."""
    device: str | None = None
    """A GPU's name as the driver or the catalog has it; ``None`` on CPUs."""
    device_share: float = 1.0
    """Of a whole GPU that each device is: below 1 for a slice of one."""
    device_memory_bytes: Quantity | None = None
    """Of one device."""
    inside: NodeLinks | None = None
    """``None`` if unknown, and with one device a node."""
    network: Network | None = None
    """``None`` if unknown; one node needs none."""
    cores: Quantity | None = None
    """Hardware threads of a node that the job may use."""
    memory_bytes: Quantity | None = None
    """Of a node."""
    storage: Storage | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    @property
    def transport_name(self) -> str | None:
        """How its nodes talk, as people call it; ``None`` of one node, and where it is unknown."""
        kind = None if self.network is None or self.nodes == 1 else self.network.transport
        return None if kind is None else CALLED[kind]

    def has_same_machines(self, other: Target) -> bool:
        """Whether both are made of one machine, or type of machine, and train on the same kind of device."""
        same = self.machine is not None and self.machine == other.machine
        return same and (self.device is None) is (other.device is None)

    def complete_from(self, described: Target) -> Target:
        """Where the job ran, with what was not seen of it as ``described`` has it: links to what was not used.

        Not storage: what the job's loaders had of it is in the profile. A description's devices are those of a whole
        machine; on CPUs ranks are as many as there were.
        """
        names = ("inside", "network", "cores", "memory_bytes", "device_memory_bytes")
        unseen = {name: getattr(described, name) for name in names if getattr(self, name) is None}
        devices = self.devices if self.device is None else described.devices
        return self.model_copy(update={**unseen, "devices": devices, "name": described.name})


# What collectives reach of a data sheet

SOCKETS_FOLLOW = 25e9 / 8
"""Bytes per second of a line up to which sockets are taken to follow it; what lies above shows their own limit."""
_LARGE = 2**26
"""Bytes from which an all-reduce is about rate and not about latency."""
_SMALL = 2**20
"""Bytes up to which it is about latency."""
_OWN_SPREAD = 3
"""Machines of a link from which their own spread means something."""
_LIKE: dict[str, str] = {"nvswitch": "nvlink", "nvlink": "nvlink", "pcie": "pcie"}
"""Whose hops a wiring has, in the table of latencies."""


_PCIE_SOCKETS = "tcp-pcie"
"""Sockets of machines whose GPUs have no links of their own, in the table of collectives."""


_HOST_COPIES = "pcie-host"
"""PCIe of GPUs that cannot read each other's memory, in the table of collectives."""
_GEFORCE = re.compile(r"\bRTX[ -]20[5-8]0", re.IGNORECASE)
"""GeForce cards of PCIe 3.0 without peer access; of later ones in later machines published figures are as others'."""


def inside_link(wiring: Wiring, gpu: str | None) -> str:
    """The link of these GPUs in the table of collectives."""
    return _HOST_COPIES if wiring == "pcie" and _GEFORCE.search(gpu or "") else wiring


class Share(NamedTuple):
    """Of one published machine: what its wire carried, of what it claims."""

    link: str
    share: float
    wire_bytes_per_second: float
    rate: CollectiveRate


@lru_cache(maxsize=32)
def reached_share(link: str, without: str | None = None) -> Quantity | None:
    """The share of the claimed rate that an all-reduce reaches over ``link``; ``None`` if none was published.

    A data sheet's figure is a line rate; how much of it an all-reduce sees is what others measured
    (``catalog/data/collectives.csv``), and how far they lie apart is how little one knows of the next machine.
    ``without`` leaves out one source, as validation has to. The interval is a prediction of one more machine:
    exp(m ± t·s·√(1 + 1/n)) with the mean of logarithms m of n machines of this link, and the standard deviation s
    pooled over links of its scope (inside a node, or between nodes), since several have one or two machines only;
    their own where they lie farther apart than that. A wire between nodes carries no more than all.
    """
    own = [
        each
        for each in published_shares(without)
        if each.link == link and not _is_socket_limited(each.rate)
    ]
    if not own:
        return None
    logs = np.log([each.share for each in own])
    spread, freedom = _pool_spread(own[0].rate.scope, without)
    if len(own) >= _OWN_SPREAD:
        alone = float(logs.std(ddof=1))
        if alone * float(student_quantile(len(own) - 1, 0.975)) > spread * float(
            student_quantile(freedom, 0.975)
        ):
            spread, freedom = alone, len(own) - 1
    most = 1.0 if own[0].rate.scope == "between" else None
    return _next_machine(logs, spread, freedom, [each.rate for each in own], most)


@lru_cache(maxsize=32)
def socket_limit(without: str | None = None) -> Quantity | None:
    """Bytes per second that NCCL's sockets carry from a node where the line is faster than they are."""
    own = [each for each in published_shares(without) if _is_socket_limited(each.rate)]
    if len(own) < 2:
        return None
    logs = np.log([each.wire_bytes_per_second for each in own])
    return _next_machine(logs, float(logs.std(ddof=1)), len(own) - 1, [each.rate for each in own])


@lru_cache(maxsize=32)
def pcie_socket_limit(devices: int, without: str | None = None) -> Quantity | None:
    """The same of machines of so many GPUs that have no links of their own: all share the host's PCIe.

    Published of one type of machine; how far the next type is off is taken to be what links between nodes lie apart.
    Of more than two nodes: two carry ``PAIR_SHARE`` of it.
    """
    own = [
        each
        for each in published_shares(without)
        if each.link == _PCIE_SOCKETS and (each.rate.ranks > each.rate.nodes) == (devices > 1)
    ]
    if not own:
        return None
    logs = np.log(
        [each.wire_bytes_per_second / (PAIR_SHARE if each.rate.nodes == 2 else 1.0) for each in own]
    )
    return _next_machine(logs, *_pool_spread("between", without), [each.rate for each in own])


PAIR_SHARE = 0.5
"""Of what sockets of machines whose GPUs share PCIe carry, that of two nodes, which send and receive over the same
pair: 0.44 to 0.62 of three's and four's on T4s, 0.66 on V100s (``catalog/data/collectives.csv``)."""


def has_linked_gpus(target: Target) -> bool:
    """Whether a node's GPUs have links of their own, by its wiring or else by the GPU's data sheet."""
    wiring = None if target.inside is None else target.inside.wiring
    return links_of_gpu(target.device) if wiring is None else wiring != "pcie"


def shares_pair(target: Target) -> bool:
    """Whether nodes talk by NCCL over sockets, and their GPUs have no links of their own."""
    by_sockets = target.backend == "nccl" and transport_used(target.network) == "sockets"
    return by_sockets and not has_linked_gpus(target)


def is_sheet_pair(target: Target) -> bool:
    """Whether these are two such machines, as far as data sheets tell: their sockets carry ``PAIR_SHARE``."""
    rate = None if target.network is None else target.network.bytes_per_second
    known = rate is not None and rate.origin == "data sheet"
    return target.nodes == 2 and known and shares_pair(target)


@lru_cache(maxsize=1)
def latency_factor() -> Quantity:
    """Latency of published small all-reduces over the sum of their hops by NCCL's own table.

    Of small messages the time without bytes at the claimed rate; what is left against start + hops of the ring.
    """
    factors, rates = [], []
    for rate in collective_rates():
        if rate.message_bytes is None or rate.message_bytes > _SMALL:
            continue
        per_byte = 2 * (rate.ranks - 1) / rate.ranks
        left = (
            per_byte
            * rate.message_bytes
            * (1 / rate.bus_bytes_per_second - 1 / rate.claimed_bytes_per_second)
        )
        between = 2 * (rate.nodes - 1)
        (start, inside), (_, network) = (
            hop_latency(_LIKE.get(rate.link, "nvlink"), "ring"),
            hop_latency("network", "ring"),
        )
        by_the_table = start + (2 * (rate.ranks - 1) - between) * inside + between * network
        factors.append(left / by_the_table)
        rates.append(rate)
    logs = np.log(factors)
    return _next_machine(logs, float(logs.std(ddof=1)), len(logs) - 1, rates)


def hop_latency(link: str, algorithm: str) -> tuple[float, float]:
    """(start, hop) in seconds by NCCL's table; ``link`` is ``nvlink``, ``pcie``, ``network``, or a wiring."""
    named = _LIKE.get(link, link)
    return next(
        (each.start_seconds, each.hop_seconds)
        for each in hop_latencies()
        if (each.link, each.algorithm) == (named, algorithm)
    )


@lru_cache(maxsize=32)
def published_shares(without: str | None = None) -> tuple[Share, ...]:
    """One for each machine: its largest message, as what its wire carried."""
    machines: dict[tuple[object, ...], CollectiveRate] = {}
    for rate in collective_rates():
        key = (
            rate.scope,
            rate.link,
            rate.gpu,
            rate.nodes,
            rate.ranks,
            rate.algorithm,
            rate.source,
            rate.notes,
        )
        largest = machines.get(key)
        if rate.source != without and (
            largest is None or (rate.message_bytes or 0) > (largest.message_bytes or 0)
        ):
            machines[key] = rate
    large = [
        rate
        for rate in machines.values()
        if rate.message_bytes is None or rate.message_bytes >= _LARGE
    ]
    return tuple(
        Share(rate.link, _wire_rate(rate) / rate.claimed_bytes_per_second, _wire_rate(rate), rate)
        for rate in large
    )


def transport_used(network: Network | None) -> NodeTransport:
    """How profiled nodes talked: over sockets, unless they were faster than any sockets are said to be."""
    if network is None:
        return "sockets"
    if network.transport is not None:
        return "sockets" if network.transport == "tcp" else "rdma"
    rate, limit = network.bytes_per_second, socket_limit()
    least = None if rate is None else rate.low or rate.value
    return (
        "rdma"
        if least is not None and limit is not None and least > (limit.high or limit.value)
        else "sockets"
    )


def links_of_gpu(name: str | None) -> bool:
    """Whether GPUs of that name have links of their own, by their data sheet; no where it is unknown."""
    return any(gpu.nvlink_bytes_per_second for gpu in found_by_name(name or "", gpus()))


def _wire_rate(rate: CollectiveRate) -> float:
    """A tree between nodes sends 2(N−1)/N of its bytes where bus bandwidth counts a ring's 2(p−1)/p."""
    if rate.scope == "inside" or rate.algorithm != "tree":
        return rate.bus_bytes_per_second
    return (
        rate.bus_bytes_per_second
        * ((rate.nodes - 1) / rate.nodes)
        / ((rate.ranks - 1) / rate.ranks)
    )


def _is_socket_limited(rate: CollectiveRate) -> bool:
    return rate.link == "tcp" and rate.claimed_bytes_per_second > SOCKETS_FOLLOW


@lru_cache(maxsize=32)
def _pool_spread(scope: str, without: str | None) -> tuple[float, int]:
    """Standard deviation of the logarithm of a share within a link, over links of a scope; its degrees of freedom."""
    groups: dict[str, list[float]] = {}
    for each in published_shares(without):
        if (
            each.rate.scope == scope
            and each.link not in (_PCIE_SOCKETS, _HOST_COPIES)
            and not _is_socket_limited(each.rate)
        ):
            groups.setdefault(each.link, []).append(float(np.log(each.share)))
    squares = sum(
        float(((np.array(group) - np.mean(group)) ** 2).sum()) for group in groups.values()
    )
    freedom = sum(len(group) - 1 for group in groups.values())
    return float(np.sqrt(squares / freedom)), freedom


def _next_machine(
    logs: Array,
    spread: float,
    freedom: int,
    rates: Sequence[CollectiveRate],
    most: float | None = None,
) -> Quantity:
    """The mean of logarithms, and the 95 % interval in which one more machine is expected."""
    arm = float(student_quantile(freedom, 0.975)) * spread * float(np.sqrt(1 + 1 / len(logs)))
    value, low, high = (float(np.exp(float(logs.mean()) + shift)) for shift in (0.0, -arm, arm))
    return Quantity(
        value=value if most is None else min(value, most),
        low=low,
        high=high if most is None else min(high, most),
        origin="data sheet",
        as_of=max(rate.as_of for rate in rates),
        source="; ".join(dict.fromkeys(rate.source for rate in rates)),
    )
