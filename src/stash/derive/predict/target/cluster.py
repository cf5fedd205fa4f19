"""The cluster that a forecast is made for: nodes, devices, links, cores, memory and disk, each with its origin.

Records only. A fact that nobody knows is ``None``, and what depends on it is unknown, never assumed.
"""

from __future__ import annotations

from typing import Literal

from stash.base.records import Record
from stash.derive.predict.uncertainty.quantity import Quantity

Wiring = Literal["nvswitch", "nvlink", "pcie", "host"]
"""Between devices of a node: through switches, direct pairs, PCIe and its switches, or host memory (CPUs)."""
NetworkKind = Literal["tcp", "efa", "infiniband"]
"""How nodes talk: sockets, AWS's EFA, or InfiniBand and RoCE."""
Backend = Literal["nccl", "gloo"]


class NodeLinks(Record):
    """What a collective inside one node finds."""

    wiring: Wiring | None = None
    bytes_per_second: Quantity | None = None
    """Bus bandwidth of an all-reduce over all devices (nccl-tests' definition); ``None`` if nobody knows it."""
    latency_seconds: Quantity | None = None
    """Of one hop of a ring: 2(p−1) of them are a ring all-reduce without bytes."""
    slowest_share: float = 1.0
    """Of the rate above, what the slowest pair has that a ring has to pass: below 1 where links are uneven."""


class Network(Record):
    """What a collective between nodes finds at one node."""

    transport: NetworkKind | None = None
    bytes_per_second: Quantity | None = None
    """Of one interface, one direction, as collectives reach it; ``None`` if nobody knows it."""
    nics: int = 1
    """Interfaces that a collective uses at once."""
    latency_seconds: Quantity | None = None
    """Of one hop between nodes."""


class Storage(Record):
    """Where a node's data lie."""

    bytes_per_second: Quantity | None = None
    """Sustained, of all readers of a node together."""
    burst_bytes_per_second: Quantity | None = None
    """At first, until its credits are spent."""
    reads_per_second: Quantity | None = None
    remote: bool | None = None
    burst_seconds: Quantity | None = None
    """How long the burst lasts if all of it is used."""
    latency_seconds: Quantity | None = None
    """Of one request, before its first byte: what object stores take."""
    stream_bytes_per_second: Quantity | None = None
    """Of one request from then on; ``None`` where one can have all there is."""


class Target(Record):
    """A cluster of equal nodes."""

    name: str
    """To be named in reports, e.g. ``"2 × aws/p3.8xlarge"``."""
    nodes: int
    devices: int
    """Of a node; ranks, one each."""
    backend: Backend
    machine: str | None = None
    """What its nodes are, in small letters: an instance type, else a host's name; ``None`` if nobody says."""
    device: str | None = None
    """A GPU's name as the driver or the catalog has it; ``None`` on CPUs."""
    device_share: float = 1.0
    """Of a whole GPU that each device is: below 1 for a slice of one."""
    device_memory_bytes: Quantity | None = None
    """Of one device."""
    inside: NodeLinks | None = None
    """``None`` if nobody knows, and with one device a node."""
    network: Network | None = None
    """``None`` if nobody knows; one node needs none."""
    cores: Quantity | None = None
    """Hardware threads of a node that the job may use."""
    memory_bytes: Quantity | None = None
    """Of a node."""
    storage: Storage | None = None

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices

    def is_of_machines_like(self, other: Target) -> bool:
        """Whether both are made of one machine, or type of machine, and train on the same kind of device."""
        same = self.machine is not None and self.machine == other.machine
        return same and (self.device is None) is (other.device is None)

    def completed_by(self, described: Target) -> Target:
        """Where the job ran, with what nobody saw of it as ``described`` has it: links to what was not used.

        Not storage: what the job's loaders had of it is in the profile. A description's devices are those of a whole
        machine; on CPUs ranks are as many as there were.
        """
        names = ("inside", "network", "cores", "memory_bytes", "device_memory_bytes")
        unseen = {name: getattr(described, name) for name in names if getattr(self, name) is None}
        devices = self.devices if self.device is None else described.devices
        return self.model_copy(update={**unseen, "devices": devices, "name": described.name})
