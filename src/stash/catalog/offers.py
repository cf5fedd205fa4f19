"""The catalog in memory: all offers as columns, what a person wants of them, and a query that is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from stash.catalog.facts import KINDS, GpuFacts, Instance, Offer, Price, PriceKind, tokens, unknown
from stash.core.errors import UserError

# Filter ----------------------------------------------------------------------------------------------------
# What a person wants of an offer, and whether an instance has it: yes, no, or not known.
#
# A fact that is not known never satisfies a wish; it is reported by name, so that whoever asks can say how many
# offers were left out for it. Knows one instance at a time and nothing of prices.

_ROUNDING = 1 - 1e-3
"""Published memory sizes have four digits ("22.35 GiB" for 24 GB), so a minimum allows for the last one."""


class OfferFilter(BaseModel):
    """Wishes; every one that is given must be met. Sizes in bytes, rates in bytes per second, prices in $/h."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    gpu: str | None = Field(None, pattern=r"[A-Za-z0-9]")
    """A model or a variant in any case: ``V100``, ``A100-80GB``, ``A100-SXM4-80GB``."""
    min_gpu_count: float | None = Field(None, ge=0)
    max_gpu_count: float | None = Field(None, ge=0)
    min_gpu_memory_bytes: float | None = Field(None, gt=0)
    """Of one GPU."""
    cloud: str | None = None
    region: str | None = None
    kinds: tuple[PriceKind, ...] = ("on-demand",)
    max_dollars_per_hour: float | None = Field(None, gt=0)
    min_network_bytes_per_second: float | None = Field(None, gt=0)
    """Of the sustained rate, not of a burst."""
    interconnect: str | None = None
    """Beginning of one part of the fabric's name: ``nvlink``, ``nvlink3``, ``nvswitch``, ``pcie``."""
    min_vcpus: float | None = Field(None, gt=0)
    min_memory_bytes: float | None = Field(None, gt=0)


Judgement = tuple[bool | None, str]
"""Whether a wish is met (``None``: not known) and the name of the fact it is about."""


def _at_least(value: float | None, wanted: float | None, fact: str, slack: float = 1.0) -> Judgement:
    if wanted is None:
        return True, fact
    return (None if value is None else value >= wanted * slack), fact


def has_gpu(instance: Instance, wanted: str) -> bool | None:
    """Whether the instance's GPU is the ``wanted`` model or variant; ``None`` when only the variant is unknown."""
    if instance.gpu_model is None:
        return False if instance.gpu_count == 0 else None
    words, have = tokens(wanted), tokens(instance.gpu_model)
    if instance.gpu is not None:
        have |= tokens(instance.gpu)
    if instance.gpu_memory_bytes is not None:
        have |= {f"{round(instance.gpu_memory_bytes / 2**30)}gb"}
    if words <= have:
        return True
    if not words & tokens(instance.gpu_model):
        return False
    sizes_differ = instance.gpu_memory_bytes is not None and any(word.endswith("gb") for word in words - have)
    return None if instance.gpu is None and not sizes_differ else False


def _gpu(instance: Instance, wish: OfferFilter) -> list[Judgement]:
    most, count = wish.max_gpu_count, instance.gpu_count
    fewer = True if most is None else None if count is None else count <= most
    cpu_only = count == 0
    least_memory = wish.min_gpu_memory_bytes
    memory = (False, "GPU memory") if cpu_only and least_memory is not None else None
    return [
        (True if wish.gpu is None else has_gpu(instance, wish.gpu), "exact GPU"),
        _at_least(count, wish.min_gpu_count, "GPU count"),
        (fewer, "GPU count"),
        memory or _at_least(instance.gpu_memory_bytes, least_memory, "GPU memory", _ROUNDING),
    ]


def _fabric(instance: Instance, wanted: str | None) -> Judgement:
    if wanted is None:
        return True, "interconnect"
    if instance.interconnect is None:
        return (False if instance.gpu_count == 0 else None), "interconnect"
    return any(part.startswith(wanted.lower()) for part in instance.interconnect.lower().split("+")), "interconnect"


def judge(instance: Instance, wish: OfferFilter) -> Judgement:
    """(True, "") when every wish about the instance is met, (False, "") when one is known not to be.

    (None, fact) when nothing is known to be missing but ``fact`` is not known.
    """
    same_cloud = wish.cloud is None or instance.cloud.lower() == wish.cloud.lower()
    findings = [
        (same_cloud, "cloud"),
        *_gpu(instance, wish),
        _at_least(instance.network_bytes_per_second, wish.min_network_bytes_per_second, "network"),
        _fabric(instance, wish.interconnect),
        _at_least(instance.vcpus, wish.min_vcpus, "vCPUs"),
        _at_least(instance.memory_bytes, wish.min_memory_bytes, "memory", _ROUNDING),
    ]
    if any(met is False for met, _ in findings):
        return False, ""
    unknown = [fact for met, fact in findings if met is None]
    return (None, unknown[0]) if unknown else (True, "")


# Table -----------------------------------------------------------------------------------------------------
# The catalog in memory: GPUs, instances, and all offers as columns, with a query that is pure.
#
# Offers are kept as arrays because there may be a hundred thousand; they become ``Offer`` records only when they
# match. Knows nothing of files, downloads or of which layer won: ``catalog.layers`` built it.

T = TypeVar("T")
Ints = NDArray[np.int32]
Mask = NDArray[np.bool_]
NOWHERE = -1
"""Index of a region or a date that is not known."""


class _Numbering(dict[T, int]):
    """Gives every new key the next number."""

    def __missing__(self, key: T) -> int:
        self[key] = len(self)
        return self[key]


@dataclass(frozen=True)
class Columns:
    """Offers as columns: row *i* is ``instance[i]`` at ``price[i]`` $/h. Other numbers are indices into the lists."""

    instance: Ints
    kind: Ints
    region: Ints
    price: NDArray[np.float64]
    as_of: Ints
    origin: Ints
    regions: tuple[str, ...]
    dates: tuple[str, ...]
    origins: tuple[tuple[str, str], ...]
    """(source, notes) pairs."""

    ARRAYS: ClassVar[tuple[str, ...]] = ("instance", "kind", "region", "price", "as_of", "origin")

    def __len__(self) -> int:
        return len(self.price)

    @classmethod
    def of(cls, prices: Iterable[Price], index: Mapping[tuple[str, str], int]) -> Columns:
        """Columns of single prices; ``index`` maps (cloud, instance) to the instance's position."""
        regions, dates, origins = _Numbering[str](), _Numbering[str](), _Numbering[tuple[str, str]]()
        rows = [
            (
                index[price.cloud, price.instance],
                KINDS.index(price.kind),
                NOWHERE if price.region is None else regions[price.region],
                NOWHERE if price.as_of is None else dates[price.as_of],
                origins[price.source, price.notes],
                price.dollars_per_hour,
            )
            for price in prices
        ]
        numbers = np.array([row[:5] for row in rows], dtype=np.int32).reshape(-1, 5)
        instance, kind, region, as_of, origin = numbers.T
        money = np.array([row[5] for row in rows], dtype=np.float64)
        return cls(instance, kind, region, money, as_of, origin, tuple(regions), tuple(dates), tuple(origins))

    def keep(self, rows: Mask) -> Columns:
        """The same columns with only some rows."""
        return self.moved({name: getattr(self, name)[rows] for name in self.ARRAYS})

    def moved(self, new: Mapping[str, Any]) -> Columns:
        """The same columns with some of them, or some of the lists, exchanged."""
        return Columns(**{item.name: new.get(item.name, getattr(self, item.name)) for item in fields(self)})


@dataclass(frozen=True)
class Answer:
    """What a query found, and what it had to leave out because a fact is not known."""

    offers: tuple[Offer, ...]
    """Cheapest first."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many offers miss only a fact, by fact: ``{"network": 12}``. An instance without a price counts as one."""


@dataclass(frozen=True)
class Catalog:
    """Everything known about GPUs, instances and prices, after the layers were merged."""

    gpus: tuple[GpuFacts, ...]
    instances: tuple[Instance, ...]
    columns: Columns
    layers: tuple[str, ...] = ()
    """One sentence on each layer: what it is and of which date."""

    def query(self, wish: OfferFilter | None = None) -> tuple[Offer, ...]:
        """The offers that meet every wish, cheapest first; those with an unknown fact are not among them."""
        return self.search(wish).offers

    def search(self, wish: OfferFilter | None = None) -> Answer:
        """Like ``query``, and says how many offers were left out for which unknown fact."""
        wish = wish or OfferFilter()
        verdicts = [judge(instance, wish) for instance in self.instances]
        fits = np.array([met is True for met, _ in verdicts], dtype=np.bool_)
        unsure = np.array([met is None for met, _ in verdicts], dtype=np.bool_)
        rows, somewhere = self._rows(wish)
        there = rows & somewhere
        found = np.flatnonzero(there & fits[self.columns.instance])
        left: Counter[str] = Counter()
        doubtful = there & unsure[self.columns.instance]
        for number, count in zip(*np.unique(self.columns.instance[doubtful], return_counts=True), strict=True):
            left[verdicts[number][1]] += int(count)
        left["region"] += int(np.count_nonzero(rows & ~somewhere & fits[self.columns.instance]))
        left["price"] += self._without_price(wish, fits)
        return Answer(self._records(found), {fact: count for fact, count in left.items() if count})

    def gpu(self, name: str) -> GpuFacts:
        """One GPU by its exact variant, its model if that has one variant, or the name a driver gives it.

        Raises UserError with the nearest names, or with the variants when a model has several.
        """
        words = tokens(name)
        exact = [gpu for gpu in self.gpus if tokens(gpu.name) == words]
        alike = exact or [gpu for gpu in self.gpus if words and words <= tokens(gpu.name)]
        if len(alike) == 1:
            return alike[0]
        if alike:
            raise UserError(f"{name!r} is made in several variants: {', '.join(gpu.name for gpu in alike)}; name one")
        raise unknown("GPU", name, [name for gpu in self.gpus for name in {gpu.model, gpu.name}])

    def instance(self, name: str) -> Instance:
        """One instance by name, in any case and with or without its cloud (``aws/p3.8xlarge``).

        Raises UserError with the nearest names.
        """
        found = self._by_name.get(name.strip().lower())
        if found is None:
            raise unknown("instance", name, [instance.name for instance in self.instances])
        return found

    def offers_of(self, instance: Instance) -> tuple[Offer, ...]:
        """Every known price of one instance, history included, cheapest first."""
        number = self.instances.index(instance)
        return self._records(np.flatnonzero(self.columns.instance == number))

    @cached_property
    def _by_name(self) -> dict[str, Instance]:
        plain = {instance.name.lower(): instance for instance in reversed(self.instances)}
        return plain | {f"{instance.cloud}/{instance.name}".lower(): instance for instance in self.instances}

    def _rows(self, wish: OfferFilter) -> tuple[Mask, Mask]:
        """Rows of the wanted kind and price, and rows that are in the wanted region."""
        columns = self.columns
        rows = np.isin(columns.kind, [KINDS.index(kind) for kind in wish.kinds])
        if wish.max_dollars_per_hour is not None:
            rows &= columns.price <= wish.max_dollars_per_hour
        if wish.region is None:
            return rows, np.ones_like(rows)
        same = [number for number, region in enumerate(columns.regions) if region.lower() == wish.region.lower()]
        rows &= np.isin(columns.region, [*same, NOWHERE])
        return rows, np.isin(columns.region, same)

    def _without_price(self, wish: OfferFilter, fits: Mask) -> int:
        kinds = [KINDS.index(kind) for kind in wish.kinds if kind != "prior"]
        if not kinds:
            return 0
        priced = np.zeros(len(self.instances), dtype=np.bool_)
        priced[self.columns.instance[np.isin(self.columns.kind, kinds)]] = True
        return int(np.count_nonzero(fits & ~priced))

    def _records(self, rows: NDArray[np.intp]) -> tuple[Offer, ...]:
        columns = self.columns
        rows = rows[np.lexsort((columns.region[rows], columns.instance[rows], columns.price[rows]))]
        regions, dates = (*columns.regions, None), (*columns.dates, None)  # NOWHERE is the last one
        origins = [columns.origins[number] for number in columns.origin[rows].tolist()]
        found = zip(  # column by column, which is several times faster than row by row
            [self.instances[number] for number in columns.instance[rows].tolist()],
            [KINDS[number] for number in columns.kind[rows].tolist()],
            columns.price[rows].tolist(),
            [regions[number] for number in columns.region[rows].tolist()],
            [dates[number] for number in columns.as_of[rows].tolist()],
            [source for source, _ in origins],
            [notes for _, notes in origins],
            strict=True,
        )
        return tuple(map(Offer._make, found))
