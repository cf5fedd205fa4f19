"""The catalog in memory: all offers as columns, what a person wants of them, and a query that is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from stash.catalog.facts import GpuFacts, Instance, Offer, Price, PriceKind, found_by_name, tokens, unknown
from stash.core.errors import UserError

# A fact that is not known never satisfies a wish; it is reported by name, so that whoever asks can say how many
# offers were left out for it.

_ROUNDING = 1 - 1e-3
"""Published memory sizes have four digits ("22.35 GiB" for 24 GB), so a minimum allows for the last one."""


class OfferFilter(BaseModel):
    """What must be met of an offer. Sizes in bytes, rates in bytes per second, prices in $/h."""

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
    ]
    if any(met is False for met, _ in findings):
        return False, ""
    unknown = [fact for met, fact in findings if met is None]
    return (None, unknown[0]) if unknown else (True, "")


# Kept as columns because there may be a hundred thousand; they become ``Offer`` records only when they match. Which
# layer won is decided in ``layers``.

Mask = NDArray[np.bool_]
Texts = NDArray[np.object_]


@dataclass(frozen=True)
class Columns:
    """Offers as columns: row *i* is the instance of position ``instance[i]`` at ``price[i]`` $/h."""

    instance: NDArray[np.int32]
    kind: Texts
    region: Texts
    """``None`` where it is not known, like dates."""
    price: NDArray[np.float64]
    as_of: Texts
    source: Texts
    notes: Texts
    own: Mask

    def __len__(self) -> int:
        return len(self.price)

    @classmethod
    def of(cls, prices: Iterable[Price], index: Mapping[tuple[str, str], int]) -> Columns:
        """Columns of single prices; ``index`` maps (cloud, instance) to the instance's position."""
        rows = [(index[row.cloud, row.instance], *row[3:5], row.region, *row[5:]) for row in prices]
        instance, kind, dollars, region, as_of, source, notes, own = zip(*rows, strict=True) if rows else ((),) * 8
        numbers, money = np.array(instance, dtype=np.int32), np.array(dollars, dtype=np.float64)
        mine = np.array(own, dtype=np.bool_)
        return cls(numbers, texts(kind), texts(region), money, texts(as_of), texts(source), texts(notes), mine)

    @classmethod
    def among(cls, prices: Iterable[Price], instances: Sequence[Instance]) -> Columns:
        """Columns of prices of these instances, by their positions."""
        return cls.of(prices, {(item.cloud, item.name): number for number, item in enumerate(instances)})

    def keep(self, rows: Mask | NDArray[np.intp]) -> Columns:
        """The same columns with only some rows: those of a mask, or of such positions."""
        return Columns(*(getattr(self, item.name)[rows] for item in fields(self)))

    def above(self, lower: Columns) -> Columns:
        """These rows and those of ``lower``."""
        return Columns(*(np.concatenate([getattr(self, i.name), getattr(lower, i.name)]) for i in fields(self)))

    def places(self) -> Iterator[tuple[int, str, str | None]]:
        """The instance, the kind and the region of each row."""
        return zip(self.instance.tolist(), self.kind.tolist(), self.region.tolist(), strict=True)


def texts(values: Sequence[str | None]) -> Texts:
    """A column of texts."""
    return np.array(values, dtype=np.object_)


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
        if name not in self._gpus_called:
            self._gpus_called[name] = found_by_name(name, self.gpus)
        alike = self._gpus_called[name]
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
    def regions(self) -> tuple[str, ...]:
        """All regions that some offer is in."""
        return tuple(each for each in dict.fromkeys(self.columns.region.tolist()) if each is not None)

    @cached_property
    def _gpus_called(self) -> dict[str, list[GpuFacts]]:
        return {}

    @cached_property
    def _by_name(self) -> dict[str, Instance]:
        plain = {instance.name.lower(): instance for instance in reversed(self.instances)}
        return plain | {f"{instance.cloud}/{instance.name}".lower(): instance for instance in self.instances}

    def _rows(self, wish: OfferFilter) -> tuple[Mask, Mask]:
        """Rows of the wanted kind and price, and rows that are in the wanted region."""
        columns = self.columns
        rows = self._of_texts(columns.kind, wish.kinds)
        if wish.max_dollars_per_hour is not None:
            rows &= columns.price <= wish.max_dollars_per_hour
        if wish.region is None:
            return rows, np.ones_like(rows)
        same = self._of_texts(columns.region, [each for each in self.regions if each.lower() == wish.region.lower()])
        return rows & (same | self._of_texts(columns.region, [None])), same

    @staticmethod
    def _of_texts(column: Texts, wanted: Iterable[str | None]) -> Mask:
        found: Mask = np.zeros(len(column), dtype=np.bool_)
        for each in wanted:
            found |= column == each
        return found

    def _without_price(self, wish: OfferFilter, fits: Mask) -> int:
        kinds = [kind for kind in wish.kinds if kind != "prior"]
        if not kinds:
            return 0
        priced = np.zeros(len(self.instances), dtype=np.bool_)
        priced[self.columns.instance[self._of_texts(self.columns.kind, kinds)]] = True
        return int(np.count_nonzero(fits & ~priced))

    def _records(self, rows: NDArray[np.intp]) -> tuple[Offer, ...]:
        order = np.lexsort((self.columns.instance[rows], self.columns.price[rows]))
        columns = self.columns.keep(rows[order])
        found = zip(  # column by column, which is several times faster than row by row
            [self.instances[number] for number in columns.instance.tolist()],
            columns.kind.tolist(),
            columns.price.tolist(),
            columns.region.tolist(),
            columns.as_of.tolist(),
            columns.source.tolist(),
            columns.notes.tolist(),
            columns.own.tolist(),
            strict=True,
        )
        return tuple(map(Offer._make, found))
