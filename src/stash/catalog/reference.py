"""Published facts other than prices: training speeds, data sets, tariffs, collectives, each with source and date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from stash.catalog.facts import Amount
from stash.catalog.shipped import GB, parse_record, read_records, read_rows
from stash.core.errors import UserError
from stash.core.records.base import Count, Record

_KINDS = {"fp32": "fp32", "tf32": "fp32", "amp": "amp"}
"""TF32 is how Ampere runs programs that ask for fp32."""


class Speed(NamedTuple):
    """One published measurement."""

    model: str
    batch: int | None
    """Of one GPU; ``None`` where unknown, or the largest that fits each GPU."""
    precision: str
    """``fp32`` (TF32 where the GPU has it) or ``amp``."""
    gpu: str
    """The GPU's model, e.g. ``V100``; sources seldom say the variant."""
    per_second: float
    """Of whatever the source counts, which is the same within a series: samples, tokens, iterations."""
    as_of: str | None
    source: str
    series: str
    """Measurements that differ in the GPU alone: one source and kind of input, whatever machine it was."""
    variant: str = ""
    """The GPU's exact name, e.g. ``V100-SXM2-16GB``; empty where the source does not say."""
    strict: bool = False
    """Whether its products were computed in true float32, though the GPU may have TF32."""

    @property
    def key(self) -> str:
        return model_key(self.model)


@lru_cache(maxsize=1024)
def model_key(name: str) -> str:
    """A model's name without what people write differently: ``"ResNet50v1.5"`` and ``"resnet-50"`` are
    ``"resnet50"``.
    """
    lowered = re.sub(r"v\d+\.\d+$", "", name.strip().lower())
    return re.sub(r"[^a-z0-9]", "", lowered)


@lru_cache(maxsize=1)
def speeds() -> tuple[Speed, ...]:
    """Every line of the table."""
    return tuple(
        Speed(
            model=row["model"],
            batch=int(row["batch"]) if row["batch"] else None,
            precision=_KINDS[row["precision"]],
            gpu=row["gpu_model"],
            per_second=float(row["speed"]),
            as_of=row["as_of"] or None,
            source=row["source"],
            series=f"{row['source'].split(',')[0]} {row['data']}",
            variant=row["gpu"],
            strict=row["precision"] == "fp32",
        )
        for row in read_rows("training_speeds.csv")
    )


@lru_cache(maxsize=1)
def flops_per_byte() -> Mapping[str, float]:
    """By model's key, FLOPs of its dense products for each byte that its operators move, in mixed precision."""
    return {row["model"]: float(row["flops_per_byte"]) for row in read_rows("model_intensity.csv")}


class KnownDataset(Record):
    """One data set's training split."""

    name: str
    samples: Count | None = None
    tokens: Count | None = None
    """Where its samples are cut from one stream of tokens."""
    as_of: str
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def known_datasets() -> tuple[KnownDataset, ...]:
    """Every one, in the file's order."""
    return read_records("datasets.csv", KnownDataset, "dataset")


def known_dataset(name: str) -> KnownDataset:
    """The one of that name, in any case, with or without dashes; raises UserError with those there are."""
    found = [item for item in known_datasets() if _plain(item.name) == _plain(name)]
    if found:
        return found[0]
    names = ", ".join(item.name for item in known_datasets())
    raise UserError(f"unknown data set {name!r}; known are {names}, of any other give --samples")


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


_UNITS = {"s": 1.0, "$/GB": 1.0, "$/GB-month": 1.0, "$/GiB-month": 1e9 / 2**30}
"""What one of each is in seconds, or in dollars per GB (and month)."""


class TariffFact(Record):
    """One published number of a cloud's billing."""

    value: float
    as_of: str
    source: str
    notes: str = ""


class Tariff(Record):
    """What one cloud charges besides its instances, and how it rounds; ``None``: no source says."""

    cloud: str
    billed_by_seconds: TariffFact | None = None
    """Use is rounded up to whole multiples of this."""
    least_seconds: TariffFact | None = None
    """That are paid for at any rate."""
    disk_dollars_per_gb_month: TariffFact | None = None
    """Of the network disk that machines commonly get."""
    egress_dollars_per_gb: TariffFact | None = None
    """Of data that leave the cloud, at the first tier."""
    zone_dollars_per_gb: TariffFact | None = None
    """Of data that go to another zone of their region, both directions together."""
    region_dollars_per_gb: TariffFact | None = None
    """Of data that go to another region of the cloud."""


@lru_cache(maxsize=1)
def tariffs() -> Mapping[str, Tariff]:
    """The shipped tariffs by cloud."""
    found: dict[str, dict[str, object]] = {}
    for row in read_rows("tariffs.csv"):
        fact = parse_record(row, TariffFact, columns={"value": ("value", _UNITS[row["unit"]])})
        found.setdefault(row["cloud"], {})[row["fact"]] = fact
    return {
        cloud: Tariff.model_validate({"cloud": cloud, **facts}) for cloud, facts in found.items()
    }


MICROSECOND = 1e-6


class CollectiveRate(Record):
    """One all-reduce that somebody published."""

    scope: Literal["inside", "between"]
    """A node's devices, or several nodes."""
    link: str
    """``nvswitch``, ``nvlink``, ``pcie``; ``efa``, ``infiniband``, ``tcp``."""
    gpu: str
    nodes: int
    ranks: int
    algorithm: str | None = None
    """``ring`` or ``tree``, where the source says so."""
    claimed_bytes_per_second: Amount
    """By the data sheet, one direction: of a device's links inside a node, of all of a node's interfaces between."""
    message_bytes: Amount | None = None
    """``None``: large, says the source."""
    bus_bytes_per_second: Amount
    """As nccl-tests defines it."""
    published: str
    as_of: str
    """When it was looked up."""
    source: str
    notes: str = ""


class HopLatency(Record):
    """What a library's authors reckon with for one hop."""

    library: str
    link: str
    """``nvlink``, ``pcie`` or ``network``."""
    algorithm: str
    start_seconds: Amount
    hop_seconds: Amount
    as_of: str
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def collective_rates() -> tuple[CollectiveRate, ...]:
    """Every published measurement, in the file's order."""
    columns = {
        "claimed_gbyte_per_s": ("claimed_bytes_per_second", GB),
        "message_bytes": ("message_bytes", 1.0),
        "busbw_gbyte_per_s": ("bus_bytes_per_second", GB),
    }
    return read_records("collectives.csv", CollectiveRate, columns=columns)


class ReachedRate(Record):
    """What somebody measured of a data sheet's figure, both in the sheet's unit."""

    gpu: str
    """The exact variant."""
    figure: str
    """``gemm 16 bits`` or ``triad``."""
    reached: Amount
    of: Amount
    published: str
    as_of: str
    """When it was looked up."""
    source: str
    notes: str = ""


@lru_cache(maxsize=1)
def reached_rates() -> tuple[ReachedRate, ...]:
    """Every published measurement, in the file's order."""
    return read_records("reached.csv", ReachedRate)


@lru_cache(maxsize=1)
def hop_latencies() -> tuple[HopLatency, ...]:
    """Every published latency of a hop, in the file's order."""
    columns = {"start_us": ("start_seconds", MICROSECOND), "hop_us": ("hop_seconds", MICROSECOND)}
    return read_records("hop_latencies.csv", HopLatency, columns=columns)


class NodeScaling(Record):
    """One model on one device and on several, of one node or of more, as somebody published it."""

    model: str
    machine: str
    gpu: str
    nodes: int
    devices: int
    """Of all nodes."""
    exchange: float
    """What the exchange between them is predicted to add to a step, as a fraction of it on one device."""
    one_per_second: Amount
    all_per_second: Amount
    as_of: str
    source: str
    notes: str = ""

    @property
    def loss(self) -> float:
        """How much longer a step takes with all devices than its exchange explains, as a fraction of it on one."""
        return self.one_per_second * self.devices / self.all_per_second - 1 - self.exchange


@lru_cache(maxsize=1)
def node_scaling() -> tuple[NodeScaling, ...]:
    """Every published pair, in the file's order."""
    columns = {"one_per_s": ("one_per_second", 1.0), "all_per_s": ("all_per_second", 1.0)}
    return read_records("node_scaling.csv", NodeScaling, columns=columns)
