"""What may be rented: offers that meet the constraints, each with its price, for profiles of one job.

Of several offers of one type, paid in one way, only the cheapest can be best: machines are the same, so time is, and
a bill grows with its price. What has no price is kept separate. Knows nothing of how long anything takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from stash.catalog.facts import Instance, Offer, PriceKind, match_name, name_words, unknown_name
from stash.catalog.offers import Catalog, OfferFilter, has_gpu, judge_instance
from stash.catalog.own import ON_PREMISE
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.plan.hourly_prices import available_count, hourly_price
from stash.plan.records import CALLED, LIMITED, Constraints, HourlyPrice, Rental, Unranked
from stash.predict.changes import MAX_NODES
from stash.predict.cluster import Target
from stash.predict.draws import Quantity


@dataclass(frozen=True, eq=False)
class Rentable:
    """An instance type at its cheapest price of a kind."""

    instance: Instance
    price: HourlyPrice
    devices: int
    device: str | None
    most_nodes: int
    offers: int
    """Of the type, paid so: this one, and dearer ones of the same machine."""
    machine: Target | None = None
    """One node, where it was measured or described rather than published."""

    @property
    def key(self) -> str:
        return f"{self.instance.cloud}/{self.instance.name}"

    @property
    def memory_bytes(self) -> float | None:
        """Memory of a node in bytes."""
        return self._fact("memory_bytes", self.instance.memory_bytes)

    @property
    def threads(self) -> float | None:
        """Hardware threads of a node."""
        return self._fact("cores", self.instance.vcpus)

    @property
    def device_memory_bytes(self) -> float | None:
        return self._fact("device_memory_bytes", self.instance.gpu_memory_bytes)

    def make_unranked(self, why: str) -> Unranked:
        """Why it is not ranked, and what one of its GPUs costs for an hour."""
        price = self.price.dollars_per_hour.value
        return make_unranked(self.instance, why, price)

    def _fact(self, measured: str, published: float | None) -> float | None:
        known: Quantity | None = getattr(self.machine, measured, None)
        return published if known is None else known.value

    def rental(self, nodes: int) -> Rental:
        return Rental(
            instance=self.instance.name,
            cloud=self.instance.cloud,
            nodes=nodes,
            devices=self.devices,
            device=self.device,
            price=self.price,
        )


def make_unranked(instance: Instance, why: str, dollars_per_hour: float | None = None) -> Unranked:
    """What is not known of a type; its price, where that is."""
    gpus = instance.gpu_count
    of_gpu = None if dollars_per_hour is None or not gpus else dollars_per_hour / gpus
    return Unranked(
        instance=instance.name, cloud=instance.cloud, why=why, dollars_per_gpu_hour=of_gpu
    )


@dataclass(frozen=True)
class Market:
    """What the constraints leave, and what could not be judged."""

    rentables: tuple[Rentable, ...]
    unranked: tuple[Unranked, ...]


def build_market(
    catalog: Catalog, constraints: Constraints, machines: Mapping[str, Target], now: date
) -> Market:
    """Every type that may be rented; raises UserError if nothing is left."""
    kinds: tuple[PriceKind, ...] = ("on-demand", "reserved")
    offers = catalog.query(
        OfferFilter(kinds=kinds if constraints.spot == "never" else (*kinds, "spot"))
    )
    allowed = {
        id(each): _is_allowed(constraints, each, each.name in machines)
        for each in catalog.instances
    }
    by_kind: dict[tuple[int, PriceKind], list[Offer]] = {}
    for offer in offers:  # cheapest first
        anywhere = not constraints.regions or offer.instance.cloud == ON_PREMISE
        if allowed[id(offer.instance)] is True and (
            anywhere or offer.region in constraints.regions
        ):
            by_kind.setdefault((id(offer.instance), offer.kind), []).append(offer)
    fixed: dict[int, float] = {}
    for offer in reversed(offers):
        if offer.kind == "on-demand":
            fixed[id(offer.instance)] = offer.dollars_per_hour
    found, left_out = [], []
    for (instance, _), alike in by_kind.items():
        price = hourly_price(alike[0], now, fixed.get(instance))
        if price is None:
            why = "its price on spot is old or undated, and none on demand says what it can be at most"
            left_out.append(make_unranked(alike[0].instance, why, alike[0].dollars_per_hour))
        else:
            found.append(
                _make_rentable(alike, price, constraints, machines.get(alike[0].instance.name))
            )
    rentables = tuple(each for each in found if each.most_nodes > 0)
    cheapest = {id(offer.instance): offer.dollars_per_hour for offer in reversed(offers)}
    for each in catalog.instances:
        verdict, price_of = allowed[id(each)], cheapest.get(id(each))
        if verdict is True and price_of is None:
            verdict = "its price is unknown"
        if isinstance(verdict, str):
            left_out.append(make_unranked(each, verdict, price_of))
    if not rentables:
        first = f"; {left_out[0].instance} is left out: {left_out[0].why}" if left_out else ""
        raise UserError(
            f"{_name_limits(constraints)} leave nothing that could be rented{first}; loosen one, or add prices: "
            "`stash catalog refresh`"
        )
    return Market(rentables, tuple(left_out))


def _name_limits(constraints: Constraints) -> str:
    """What leaves offers out, as a subject of a sentence."""
    given = [
        f"--{CALLED.get(name, name)}"
        for name, field in LIMITED.items()
        if getattr(constraints, field)
    ]
    return f"these constraints ({join_names(given)})" if given else "the catalog"


def _make_rentable(
    alike: Sequence[Offer], price: HourlyPrice, constraints: Constraints, machine: Target | None
) -> Rentable:
    offer, instance = alike[0], alike[0].instance
    devices = machine.devices if machine is not None else instance.devices
    device = machine.device if machine is not None else instance.gpu or instance.gpu_model
    counts = [
        each
        for each in (available_count(offer), constraints.quotas.get(instance.name))
        if each is not None
    ]
    if not counts and price.paid_as == "own":
        counts = [1]  # of one's own there is one, unless a file or a quota says how many
    limits = [constraints.most_nodes, MAX_NODES // devices, *counts]  # as far as forecasts go
    if constraints.most_dollars_per_hour is not None and offer.dollars_per_hour > 0:
        # What an hour costs to the cent may exceed the limit by its last bit.
        limits.append(int(constraints.most_dollars_per_hour / offer.dollars_per_hour * (1 + 1e-12)))
    return Rentable(instance, price, devices, device, min(limits), len(alike), machine)


def _is_allowed(constraints: Constraints, instance: Instance, measured: bool) -> bool | str:
    """Whether the type may be rented; a sentence where a fact that decides it, or its speed, is unknown."""
    cloud, name = instance.cloud, instance.name
    if constraints.clouds and cloud not in constraints.clouds:
        return False
    if not {cloud, name, f"{cloud}/{name}"}.isdisjoint(constraints.excluded):
        return False
    if constraints.gpus:
        answers = [has_gpu(instance, gpu) for gpu in constraints.gpus]
        if True not in answers:
            return "its exact GPU is unknown" if None in answers else False
    least = constraints.least_gpu_memory_bytes
    if least is not None:
        enough, _ = judge_instance(instance, OfferFilter(min_gpu_memory_bytes=least))
        if not enough:
            return "its GPUs' memory is unknown" if enough is None else False
    if measured or instance.gpu_share == 1.0:
        return True
    return (
        f"it has {instance.gpu_share:.2g} of one {instance.gpu_model}, and how fast a slice of a GPU trains is not "
        "published; profile there"
    )


def resolve_names(constraints: Constraints, catalog: Catalog) -> Constraints:
    """The same, each name as the catalog writes it; raises UserError, with the nearest, for one that it lacks."""
    clouds = {each.cloud for each in catalog.instances}
    types = {each.name for each in catalog.instances}
    machines = clouds | types | {f"{each.cloud}/{each.name}" for each in catalog.instances}
    for name in constraints.gpus:
        if not name_words(name) or all(has_gpu(each, name) is False for each in catalog.instances):
            models = {
                gpu for each in catalog.instances for gpu in (each.gpu_model, each.gpu) if gpu
            }
            raise unknown_name("GPU", name, models, "gpu")
    return constraints.model_copy(
        update={
            "clouds": tuple(
                match_name(each, clouds, "cloud", "cloud") for each in constraints.clouds
            ),
            "regions": tuple(
                match_name(each, catalog.regions, "region", "region")
                for each in constraints.regions
            ),
            "excluded": tuple(
                match_name(each, machines, "instance type or cloud", "exclude")
                for each in constraints.excluded
            ),
            "quotas": {
                match_name(each, types, "instance type", "quota"): most
                for each, most in constraints.quotas.items()
            },
        }
    )
