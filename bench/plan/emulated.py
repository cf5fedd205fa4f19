"""A fleet to choose from, emulated: eight instance types, one to three nodes of each, and three models to train.

Types differ in what clouds' types differ in: devices, links between them, network, disk, price. Prices are made up,
and were written down before anything was measured. Knows what a candidate is, how the testbed is to emulate it, and
what its data sheet says; runs nothing and chooses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.core.units import parse_rate
from stash.predict.cluster import Storage, Target
from stash.predict.draws import Quantity, given_quantity

NODES = (1, 2, 3)
MAX_RANKS = 6
"""On two cores and in a few GB of memory."""
BATCH = 4


@dataclass(frozen=True)
class FleetType:
    """One instance type, as its data sheet has it."""

    name: str
    devices: int
    inside: str | None
    """Rate of the one medium that the devices share, as a PCIe switch."""
    network: str
    disk: str
    dollars_per_hour: float

    @property
    def most_nodes(self) -> int:
        return min(max(NODES), MAX_RANKS // self.devices)


TYPES = (
    FleetType("a1", 1, None, "150mbit", "20MB/s", 0.50),
    FleetType("b1", 1, None, "400mbit", "40MB/s", 0.60),
    FleetType("c1", 1, None, "1gbit", "80MB/s", 1.10),
    FleetType("a2", 2, "600mbit", "150mbit", "20MB/s", 0.90),
    FleetType("b2", 2, "1200mbit", "400mbit", "40MB/s", 1.15),
    FleetType("c2", 2, "2400mbit", "1gbit", "80MB/s", 2.30),
    FleetType("b3", 3, "1200mbit", "400mbit", "40MB/s", 1.70),
    FleetType("c4", 4, "2400mbit", "1gbit", "80MB/s", 3.10),
)
PROFILED = (TYPES[4], 2)
"""Where each model is profiled: two nodes of a cheap type, which have every stall. All else is forecast."""


@dataclass(frozen=True)
class FleetModel:
    """One model: equal layers, an exchange each."""

    name: str
    layers: int
    layer_bytes: int
    compute_seconds: float
    """Of a step's passes, a third of it forward."""


MODELS = (
    FleetModel("light", 12, 250_000, 0.150),
    FleetModel("even", 12, 600_000, 0.120),
    FleetModel("heavy", 12, 1_200_000, 0.100),
)
"""From 20 to 144 MB of gradients a second of compute; a ResNet-50 on a V100 has about 300 behind links 60 times as
fast."""


@dataclass(frozen=True)
class Candidate:
    """Some nodes of one type, training one model."""

    model: FleetModel
    type: FleetType
    nodes: int

    @property
    def name(self) -> str:
        return f"{self.model.name} on {self.nodes} x {self.type.name}"

    @property
    def ranks(self) -> int:
        return self.nodes * self.type.devices

    @property
    def samples_per_step(self) -> int:
        return self.ranks * BATCH

    @property
    def dollars_per_hour(self) -> float:
        return self.nodes * self.type.dollars_per_hour


CANDIDATES = tuple(
    Candidate(model, type_, nodes)
    for model in MODELS
    for type_ in TYPES
    for nodes in NODES
    if nodes <= type_.most_nodes
)


def profiled_candidate(model: FleetModel) -> Candidate:
    """What all forecasts of ``model`` start from."""
    return Candidate(model, *PROFILED)


def machines(base: Target) -> dict[str, Target]:
    """Every type's node by name: of its data sheet, what the profile's links reached of theirs.

    ``base`` is the profiled cluster, as the profile tells it. A medium that d devices share carries d times what each
    sends, so its bus bandwidth is a d-th. Disks are taken at their word: the testbed refuses one that is 5 % off.
    """
    return {each.name: _machine(base, each) for each in TYPES}


def _machine(base: Target, type_: FleetType) -> Target:
    seen, _ = PROFILED
    inside, network = base.inside, base.network
    if inside is not None and type_.inside is not None and seen.inside is not None:
        claims = [
            parse_rate(rate) / devices
            for rate, devices in ((type_.inside, type_.devices), (seen.inside, seen.devices))
        ]
        reached = _scale_reached(inside.bytes_per_second, claims[0] / claims[1], type_)
        inside = inside.model_copy(update={"bytes_per_second": reached})
    if network is not None:
        times = parse_rate(type_.network) / parse_rate(seen.network)
        network = network.model_copy(
            update={"bytes_per_second": _scale_reached(network.bytes_per_second, times, type_)}
        )
    return base.model_copy(
        update={
            "name": type_.name,
            "machine": type_.name,
            "nodes": 1,
            "devices": type_.devices,
            "inside": None if type_.devices == 1 else inside,
            "network": network,
            # All hosts share this machine's cores, and none keeps data in memory from one epoch to the next.
            "cores": None,
            "memory_bytes": None,
            "storage": Storage(
                bytes_per_second=given_quantity(
                    parse_rate(type_.disk), f"the data sheet of {type_.name}"
                )
            ),
        }
    )


def _scale_reached(seen: Quantity | None, times: float, type_: FleetType) -> Quantity | None:
    source = f"the data sheet of {type_.name}, by what the profile's links reached of theirs"
    return None if seen is None else seen.scale(times, "scaled", source)
