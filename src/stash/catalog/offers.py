"""The catalog in memory: all prices, what a person wants of them, and a query that is pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import BaseModel, ConfigDict, Field

from stash.catalog.facts import (
    GpuFacts,
    Instance,
    Offer,
    Price,
    PriceKind,
    found_by_name,
    name_words,
    unknown_name,
)
from stash.core.errors import UserError
from stash.core.records.circumstances import MachinePrice

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


def _judge_least(
    value: float | None, wanted: float | None, fact: str, slack: float = 1.0
) -> Judgement:
    if wanted is None:
        return True, fact
    return (None if value is None else value >= wanted * slack), fact


def has_gpu(instance: Instance, wanted: str) -> bool | None:
    """Whether the instance's GPU is the ``wanted`` model or variant; ``None`` when only the variant is unknown."""
    if instance.gpu_model is None:
        return False if instance.gpu_count == 0 else None
    words = name_words(wanted)
    have = name_words(instance.gpu_model)
    if instance.gpu is not None:
        have |= name_words(instance.gpu)
    if instance.gpu_memory_bytes is not None:
        have |= {f"{round(instance.gpu_memory_bytes / 2**30)}gb"}
    if words <= have:
        return True
    if not words & name_words(instance.gpu_model):
        return False
    sizes_differ = instance.gpu_memory_bytes is not None and any(
        word.endswith("gb") for word in words - have
    )
    return None if instance.gpu is None and not sizes_differ else False


def _fabric(instance: Instance, wanted: str | None) -> Judgement:
    if wanted is None:
        return True, "interconnect"
    if instance.interconnect is None:
        return (False if instance.gpu_count == 0 else None), "interconnect"
    return any(
        part.startswith(wanted.lower()) for part in instance.interconnect.lower().split("+")
    ), "interconnect"


def judge_instance(instance: Instance, wish: OfferFilter) -> Judgement:
    """(True, "") when every wish about the instance is met, (False, "") when one is known not to be.

    (None, fact) when nothing is known to be missing but ``fact`` is not known.
    """
    same_cloud = wish.cloud is None or instance.cloud.lower() == wish.cloud.lower()
    most = wish.max_gpu_count
    count = instance.gpu_count
    fewer = True if most is None else None if count is None else count <= most
    cpu_only = count == 0
    least_memory = wish.min_gpu_memory_bytes
    memory = (False, "GPU memory") if cpu_only and least_memory is not None else None
    findings = [
        (same_cloud, "cloud"),
        (True if wish.gpu is None else has_gpu(instance, wish.gpu), "exact GPU"),
        _judge_least(count, wish.min_gpu_count, "GPU count"),
        (fewer, "GPU count"),
        memory or _judge_least(instance.gpu_memory_bytes, least_memory, "GPU memory", _ROUNDING),
        _judge_least(
            instance.network_bytes_per_second, wish.min_network_bytes_per_second, "network"
        ),
        _fabric(instance, wish.interconnect),
    ]
    if any(met is False for met, _ in findings):
        return False, ""
    unknown = [fact for met, fact in findings if met is None]
    return (None, unknown[0]) if unknown else (True, "")


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
    prices: tuple[Price, ...]
    """Each of an instance that is there."""
    layers: tuple[str, ...] = ()
    """One sentence on each layer: what it is and of which date."""

    def query(self, wish: OfferFilter | None = None) -> tuple[Offer, ...]:
        """The offers that meet every wish, cheapest first; those with an unknown fact are not among them."""
        return self.search(wish).offers

    def search(self, wish: OfferFilter | None = None) -> Answer:
        """Like ``query``, and says how many offers were left out for which unknown fact."""
        wish = wish or OfferFilter()
        verdicts = {
            key: judge_instance(instance, wish) for key, instance in self._instances_by_key.items()
        }
        region = None if wish.region is None else wish.region.lower()
        found: list[Offer] = []
        left: Counter[str] = Counter()
        priced: set[tuple[str, str]] = set()
        for price in self.prices:
            if price.kind not in wish.kinds:
                continue
            key = price.cloud, price.instance
            if price.kind != "prior":
                priced.add(key)
            met, unknown_fact = verdicts[key]
            too_dear = (
                wish.max_dollars_per_hour is not None
                and price.dollars_per_hour > wish.max_dollars_per_hour
            )
            elsewhere = (
                region is not None and price.region is not None and price.region.lower() != region
            )
            if met is False or too_dear or elsewhere:
                continue
            if region is not None and price.region is None:
                left["region"] += met is True
            elif met is None:
                left[unknown_fact] += 1
            else:
                found.append(self._offer(price))
        if any(kind != "prior" for kind in wish.kinds):
            left["price"] += sum(
                met is True for key, (met, _) in verdicts.items() if key not in priced
            )
        return Answer(
            self._cheapest_first(found), {fact: count for fact, count in left.items() if count}
        )

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
            raise UserError(
                f"{name!r} is made in several variants: {', '.join(gpu.name for gpu in alike)}; name one"
            )
        raise unknown_name(
            "GPU", name, [name for gpu in self.gpus for name in {gpu.model, gpu.name}]
        )

    def instance(self, name: str) -> Instance:
        """One instance by name, in any case and with or without its cloud (``aws/p3.8xlarge``).

        Raises UserError with the nearest names.
        """
        found = self._instances_by_name.get(name.strip().lower())
        if found is None:
            raise unknown_name("instance", name, [instance.name for instance in self.instances])
        return found

    def offers_of(self, instance: Instance) -> tuple[Offer, ...]:
        """Every known price of one instance, history included, cheapest first."""
        key = instance.cloud, instance.name
        return self._cheapest_first(
            [self._offer(price) for price in self.prices if (price.cloud, price.instance) == key]
        )

    def newest_on_demand(self, name: str | None) -> Offer | None:
        """The on-demand price of an instance of the newest date, of one date the cheapest; ``None`` if unknown."""
        instance = None if name is None else self._instances_by_name.get(name.strip().lower())
        if instance is None:
            return None
        offers = [offer for offer in self.offers_of(instance) if offer.kind == "on-demand"]
        return max(offers, key=lambda each: each.as_of or "", default=None)

    def on_demand_price(self, name: str, nodes: int) -> MachinePrice:
        """The newest on-demand price of so many of an instance, with its source; raises UserError."""
        found = self.instance(name)
        offer = self.newest_on_demand(f"{found.cloud}/{found.name}")
        if offer is None:
            raise UserError(f"--instance {name}: the catalog knows no on-demand price of it")
        where = f" in {offer.region}" if offer.region else ""
        source = f"{offer.source}{where}, {offer.as_of or 'undated'}"
        return MachinePrice(
            instance=found.name, dollars_per_hour=offer.dollars_per_hour * nodes, source=source
        )

    @cached_property
    def regions(self) -> tuple[str, ...]:
        """All regions that some offer is in."""
        return tuple(
            dict.fromkeys(price.region for price in self.prices if price.region is not None)
        )

    @cached_property
    def _gpus_called(self) -> dict[str, list[GpuFacts]]:
        return {}

    @cached_property
    def _instances_by_name(self) -> dict[str, Instance]:
        plain = {instance.name.lower(): instance for instance in reversed(self.instances)}
        return plain | {
            f"{instance.cloud}/{instance.name}".lower(): instance for instance in self.instances
        }

    @cached_property
    def _instances_by_key(self) -> dict[tuple[str, str], Instance]:
        return {(instance.cloud, instance.name): instance for instance in self.instances}

    @cached_property
    def _order(self) -> dict[tuple[str, str], int]:
        return {key: number for number, key in enumerate(self._instances_by_key)}

    def _offer(self, price: Price) -> Offer:
        instance = self._instances_by_key[price.cloud, price.instance]
        return Offer(
            instance,
            price.kind,
            price.dollars_per_hour,
            price.region,
            price.as_of,
            price.source,
            price.notes,
            price.own,
        )

    def _cheapest_first(self, offers: list[Offer]) -> tuple[Offer, ...]:
        order = self._order
        return tuple(
            sorted(
                offers,
                key=lambda offer: (
                    offer.dollars_per_hour,
                    order[offer.instance.cloud, offer.instance.name],
                ),
            )
        )
