"""``cluster.yaml``: the machines of a lab and what they cost, checked with line and field of every mistake.

Turns the file into a ``LabCluster``. What an hour costs is a price, or what was paid over the years of use with power
and staff; nothing said is nothing known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from stash.api import ByteRate, Dollars, Ownership, PowerPrice, Purchase, Watts
from stash.core.user_files import load
from stash.schedule.records import DESCRIBED, YEAR_HOURS, ClusterNode, Costs, LabCluster

EXAMPLE = """\
name: lab
power_price: $0.15/kWh
staff: 60000          # dollars a year
nodes:
  - {gpu: V100, gpus: 4, count: 2, cores: 32, purchase: $60000, years: 5, power: 2kW}
  - {gpu: K80, gpus: 8, count: 3, price: $0.90/h}
"""
_MAX_NODES = 100_000


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Machines(_Entry):
    gpu: Annotated[str, Field(min_length=1, max_length=100)]
    gpus: Annotated[int, Field(ge=1, le=1024)]
    count: Annotated[int, Field(ge=1, le=_MAX_NODES)] = 1
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    cores: Annotated[float | None, Field(gt=0, le=4096)] = None
    network: ByteRate = None
    price: Dollars = None
    purchase: Purchase = None
    years: Annotated[float | None, Field(gt=0, le=50)] = None
    power: Watts = None


class ClusterFile(_Entry):
    """The file as it is written."""

    name: Annotated[str, Field(min_length=1, max_length=100)] = "the cluster"
    nodes: Annotated[tuple[_Machines, ...], Field(min_length=1, max_length=10_000)]
    power_price: PowerPrice = None
    staff: Annotated[float | None, Field(ge=0, le=1e9)] = None


def read_cluster(path: Path) -> LabCluster:
    """The cluster at ``path``; raises UserError."""
    file = load(path, ClusterFile, "the cluster", DESCRIBED)
    nodes: list[ClusterNode] = []
    for number, entry in enumerate(file.content.nodes):
        if entry.price is not None and entry.purchase is not None:
            raise file.mistake(
                ("nodes", number, "purchase"),
                "a machine has a price an hour, or was bought; not both",
            )
        if entry.purchase is not None and entry.years is None:
            raise file.mistake(("nodes", number, "purchase"), "over how many years? give years: 5")
        if entry.power is not None and file.content.power_price is None:
            raise file.mistake(
                ("nodes", number, "power"),
                "what does it cost? give power_price: $0.15/kWh above nodes",
            )
        stem = entry.name or f"{entry.gpu.lower()}-{number + 1}"
        names = (
            [stem] if entry.count == 1 else [f"{stem}-{each + 1}" for each in range(entry.count)]
        )
        nodes += [
            ClusterNode(name, entry.gpu, entry.gpus, entry.cores, entry.network) for name in names
        ]
    names = [node.name for node in nodes]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise file.mistake(
            ("nodes",),
            f"two machines are called {twice}; give each line of nodes a name of its own",
        )
    return LabCluster(tuple(nodes), _costs(file.content), file.content.name)


def _costs(content: ClusterFile) -> Costs:
    """Machines and power by their own type; staff over all GPUs alike."""
    dollars: dict[str, float] = {}
    gpus: dict[str, int] = {}
    known = True
    for entry in content.nodes:
        if entry.price is None and entry.purchase is None:
            known = False
            continue
        owned = Ownership(
            entry.purchase or 0.0, entry.years or 1.0, 1.0, entry.power, content.power_price
        )
        hourly = (entry.price or 0.0) + owned.dollars_per_hour
        dollars[entry.gpu] = dollars.get(entry.gpu, 0.0) + entry.count * hourly
        gpus[entry.gpu] = gpus.get(entry.gpu, 0) + entry.count * entry.gpus
    staff = (content.staff or 0.0) / YEAR_HOURS
    everything = sum(entry.count * entry.gpus for entry in content.nodes)
    by_type = {kind: each / gpus[kind] + staff / everything for kind, each in dollars.items()}
    return Costs(by_type, sum(dollars.values()) + staff if known else None)
