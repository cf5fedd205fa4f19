"""The catalog in memory: GPUs, instances, and all offers as columns, with a query that is pure.

Offers are kept as arrays because there may be a hundred thousand; they become ``Offer`` records only when they
match. Knows nothing of files, downloads or of which layer won: ``catalog.layers`` built it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from stash.base.errors import UserError
from stash.keep.catalog.facts import KINDS, GpuFacts, Instance, Offer, Price
from stash.keep.catalog.filter import OfferFilter, judge
from stash.keep.catalog.names import tokens, unknown

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
