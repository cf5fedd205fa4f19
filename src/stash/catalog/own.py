"""The user's own instances and on-premise machines, of a YAML file, as the catalog's records.

Knows the fields of that file (``docs/how-to/own-instances.md``). Knows nothing of how they merge with other layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from stash.catalog import shipped
from stash.catalog.facts import (
    Architecture,
    Date,
    GpuFacts,
    Instance,
    Price,
    PriceKind,
    found_by_name,
)
from stash.core import units
from stash.core.units import find_nearest, format_rate
from stash.core.user_files import UserFile, load, quantity

ON_PREMISE = "on-premise"
MAX_MACHINES = 16_384
Key = tuple[str, str]


def _countable(given: float | None) -> float | None:
    if given is not None and given > 1 and given != int(given):
        raise ValueError(
            f"{given:g} is no number of GPUs; it is a whole number, or below 1 for a slice of one"
        )
    return given


ByteCount = Annotated[float | None, quantity(units.validate_size)]
ByteRate = Annotated[float | None, quantity(units.validate_rate)]
Dollars = Annotated[float | None, quantity(units.validate_price)]
Purchase = Annotated[float | None, quantity(units.validate_purchase)]
Watts = Annotated[float | None, quantity(units.validate_power)]
PowerPrice = Annotated[float | None, quantity(units.power_price)]
Machines = Annotated[int | None, Field(ge=1, le=MAX_MACHINES)]
Name = Annotated[str, Field(min_length=1, max_length=100)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OwnGpu(_Entry):
    """A GPU that Stash does not know."""

    name: Name
    model: Name | None = None
    memory: ByteCount = None
    memory_bandwidth: ByteRate = None
    nvlink: ByteRate = None
    fp32_tflops: Annotated[float | None, Field(gt=0, le=10_000)] = None
    architecture: Architecture | None = None
    tensor_fp16_tflops: Annotated[float | None, Field(gt=0, le=100_000)] = None
    tensor_tf32_tflops: Annotated[float | None, Field(gt=0, le=100_000)] = None
    as_of: Date = None
    source: str | None = None
    notes: str = ""


class OwnInstance(_Entry):
    """A machine of the user's, or a correction of an instance that Stash knows."""

    name: Name
    cloud: Name | None = None
    gpu: Name | None = None
    gpu_count: Annotated[float | None, Field(ge=0, le=1024), AfterValidator(_countable)] = None
    gpu_memory: ByteCount = None
    vcpus: Annotated[float | None, Field(gt=0, le=4096)] = None
    memory: ByteCount = None
    interconnect: (
        Annotated[str, Field(pattern=r"^(none|pcie\d?|nvlink\d(\+nvswitch)?|[a-z0-9+.-]+)$")] | None
    ) = None
    interconnect_bandwidth: ByteRate = None
    pair_min: ByteRate = None
    pair_max: ByteRate = None
    pcie: ByteRate = None
    network: ByteRate = None
    network_burst: ByteRate = None
    rdma: ByteRate = None
    local_disk: ByteCount = None
    remote_disk: ByteRate = None
    region: Name | None = None
    price: Dollars = None
    spot_price: Dollars = None
    reserved_price: Dollars = None
    reserved_count: Machines = None
    count: Machines = None
    as_of: Date = None
    source: str | None = None
    notes: str | None = None


class _Content(_Entry):
    gpus: Annotated[tuple[OwnGpu, ...], Field(max_length=1_000)] = ()
    instances: Annotated[tuple[OwnInstance, ...], Field(max_length=10_000)] = ()


@dataclass(frozen=True)
class OwnFile:
    """A checked file of the user's."""

    path: Path
    gpus: tuple[GpuFacts, ...]
    entries: tuple[OwnInstance, ...]
    known_gpus: Mapping[str, GpuFacts]

    def place_entries(
        self, known: Mapping[Key, Instance]
    ) -> tuple[dict[Key, Instance], tuple[Price, ...]]:
        """Its instances by (cloud, name), holding only the fields it gives, and its prices.

        An entry's cloud is its own, else that of a known instance of this name, else on-premise. Both names are taken
        in any case, as they are everywhere else.
        """
        keys = {(cloud.lower(), name.lower()): (cloud, name) for cloud, name in known}
        clouds = {name: cloud for cloud, name in reversed(list(keys))}
        written = {cloud.lower(): cloud for cloud in (ON_PREMISE, *(cloud for cloud, _ in known))}
        instances: dict[Key, Instance] = {}
        prices: list[Price] = []
        for entry in self.entries:
            called = entry.name.lower()
            cloud = entry.cloud or clouds.get(called, ON_PREMISE)
            key = keys.get((cloud.lower(), called), (written.get(cloud.lower(), cloud), entry.name))
            instances[key] = _instance(entry, key, self.path, self.known_gpus, known.get(key))
            source, notes = entry.source or str(self.path), entry.notes or ""
            prices += [
                Price(*key, entry.region, kind, dollars, entry.as_of, source, notes, own=True)
                for field, kind in _PRICES.items()
                if (dollars := getattr(entry, field)) is not None
            ]
        return instances, tuple(prices)


def load_own_file(path: Path) -> OwnFile:
    """The file at ``path``; raises UserError with line and field for every mistake in it."""
    file = load(path, _Content, "the instances file", "see docs/how-to/own-instances.md")
    gpus = tuple(_gpu(gpu, path) for gpu in file.content.gpus)
    names: set[str] = set()
    for number, gpu in enumerate(gpus):
        if gpu.name in names:
            raise file.mistake(("gpus", number, "name"), f"there are two GPUs called {gpu.name!r}")
        names.add(gpu.name)
    known = {gpu.name: gpu for gpu in (*shipped.gpus(), *gpus)}
    seen: set[Key] = set()
    for number, entry in enumerate(file.content.instances):
        key = ((entry.cloud or "").lower(), entry.name.lower())
        if key in seen:
            raise file.mistake(
                ("instances", number, "name"), f"there are two instances called {entry.name!r}"
            )
        seen.add(key)
        _check_entry(entry, number, file)
        if entry.gpu is not None and not found_by_name(entry.gpu, known.values()):
            alike = find_nearest(entry.gpu, known)
            hint = f"did you mean {', '.join(alike)}? Otherwise " if alike else ""
            why = f"{entry.gpu!r} is unknown; {hint}add it under gpus: in this file"
            raise file.mistake(("instances", number, "gpu"), why)
    return OwnFile(path, gpus, file.content.instances, known)


_TOGETHER = (
    ("reserved_price", "reserved_count", "4"),
    ("reserved_count", "reserved_price", "$7.10/h"),
)
_PRICES: dict[str, PriceKind] = {
    "price": "on-demand",
    "spot_price": "spot",
    "reserved_price": "reserved",
}
_ORDERED = (("pair_min", "pair_max"), ("network", "network_burst"))
"""Fields of which the first is never above the second."""


def _check_entry(entry: OwnInstance, number: int, file: UserFile[_Content]) -> None:
    """Raise UserError for fields that contradict each other, or mean nothing alone."""
    given = entry.model_dump(exclude_none=True)
    for name, other, like in _TOGETHER:
        if name in given and other not in given:
            raise file.mistake(("instances", number, name), f"needs {other} as well, like {like}")
    for less, more in _ORDERED:
        if less in given and more in given and given[less] > given[more]:
            rates = f"{format_rate(given[less])} and {format_rate(given[more])}"
            why = f"is above {more} ({rates}); swap them, or leave one out"
            raise file.mistake(("instances", number, less), why)


def _gpu(gpu: OwnGpu, path: Path) -> GpuFacts:
    def flops(tera: float | None) -> float | None:
        return None if tera is None else tera * 1e12

    return GpuFacts(
        name=gpu.name,
        model=gpu.model or gpu.name,
        memory_bytes=gpu.memory,
        memory_bytes_per_second=gpu.memory_bandwidth,
        nvlink_bytes_per_second=gpu.nvlink,
        fp32_flops_per_second=flops(gpu.fp32_tflops),
        architecture=gpu.architecture,
        tensor_fp16_flops_per_second=flops(gpu.tensor_fp16_tflops),
        tensor_tf32_flops_per_second=flops(gpu.tensor_tf32_tflops),
        as_of=gpu.as_of or "undated",
        source=gpu.source or str(path),
        notes=gpu.notes,
    )


_RENAMED = {
    "gpu_memory": "gpu_memory_bytes",
    "memory": "memory_bytes",
    "interconnect_bandwidth": "interconnect_bytes_per_second",
    "pair_min": "pair_min_bytes_per_second",
    "pair_max": "pair_max_bytes_per_second",
    "pcie": "pcie_bytes_per_second",
    "network": "network_bytes_per_second",
    "network_burst": "network_burst_bytes_per_second",
    "rdma": "rdma_bytes_per_second",
    "local_disk": "local_disk_bytes",
    "remote_disk": "remote_disk_bytes_per_second",
    "count": "owned_count",
}
"""Fields that have another name in the catalog; others are called alike, or no fact of the machine."""
_ELSEWHERE = {"name", "cloud", "gpu", "region", *_PRICES, "as_of", "source"}


def _instance(
    entry: OwnInstance,
    key: Key,
    path: Path,
    known: Mapping[str, GpuFacts],
    old: Instance | None,
) -> Instance:
    """Only the fields that the entry gives are set, so that the others can come from ``old``, of a lower layer."""
    fields = entry.model_dump(exclude=_ELSEWHERE, exclude_none=True)
    given: dict[str, Any] = {_RENAMED.get(name, name): value for name, value in fields.items()}
    if entry.rdma is not None:
        given["rdma"] = True
    if entry.gpu is not None:
        variants = found_by_name(entry.gpu, known.values())
        given["gpu_model"] = variants[0].model
        given["gpu"] = variants[0].name if len(variants) == 1 else None
        if old is None:
            given.setdefault("gpu_count", 1.0)
        count = given.get("gpu_count") or (old and old.gpu_count) or 1.0
        sizes = {gpu.memory_bytes for gpu in variants}
        size = sizes.pop() if len(sizes) == 1 else None
        if size is not None and (old is None or old.gpu != given["gpu"]):
            # A part of a GPU has that part of its memory.
            given.setdefault("gpu_memory_bytes", size * min(1.0, count))
    as_of, source = entry.as_of or "undated", entry.source or str(path)
    return Instance(cloud=key[0], name=key[1], as_of=as_of, source=source, layer="user", **given)
