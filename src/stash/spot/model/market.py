"""What of a catalog a fleet can be made of: workers with a spot price and a quota, servers on demand, in one region.

Reads offers; knows nothing of jobs. A type without a spot price is refused, since it cannot be weighed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from stash.api import Instance, Offer, given_quantity, network_rate, price_age
from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.core.units import find_nearest, format_bytes
from stash.spot.fleet_records import ParameterServers


@dataclass(frozen=True)
class PricedWorker:
    """A type of worker at its spot price."""

    instance: Instance
    quota: int
    spot: Offer
    on_demand: Offer | None


@dataclass(frozen=True)
class FleetMarket:
    """Where and of what a fleet can be rented."""

    region: str | None
    workers: tuple[PricedWorker, ...]
    servers: tuple[ParameterServers, ...]
    """The cheapest first, each faster than all that are cheaper; no work of updates is in them."""
    start_seconds: float


def market_of(
    offers: Iterable[Offer],
    quotas: Mapping[str, int],
    servers: int = 1,
    start_seconds: float = 0.0,
    needs_bytes: float | None = None,
) -> FleetMarket:
    """The region where these machines cost least; raises UserError for what no offer has.

    ``needs_bytes``: memory of one of the ``servers``; smaller machines are left out.
    """
    every = tuple(offers)
    if not quotas:
        spots = sorted({each.instance.name for each in every if each.kind == "spot"})
        known = f"; spot prices are known of {join_names(spots, 12)}" if spots else ""
        raise UserError(
            f"--quota is missing: say how many of which types you may rent, like --quota g4dn.4xlarge=5{known}"
        )
    names = {each.instance.name for each in every}
    for name in quotas:
        if name not in names:
            alike = find_nearest(name, names)
            hint = (
                f"did you mean {join_names(alike)}?"
                if alike
                else "`stash catalog` lists what there is"
            )
            raise UserError(f"--quota {name}: no offer has that type; {hint}")
    named = sorted({each.region for each in every if each.region is not None})
    regions: list[str | None] = [*named] if named else [None]
    found = [
        _region_market(region, every, quotas, servers, start_seconds, needs_bytes)
        for region in regions
    ]
    whole = [each for each in found if len(each.workers) == len(quotas)]
    if not whole:
        raise UserError(_explain_unpriced(found, quotas))
    served = [each for each in whole if each.servers]
    if not served:
        room = "" if needs_bytes is None else f" and {format_bytes(needs_bytes)} of memory"
        raise UserError(
            f"no machine without GPUs has an on-demand price here{room} that could be the server; share the model "
            "among more with --servers N, get prices with `stash catalog refresh`, or write yours into your "
            "instances file (docs/how-to/own-instances.md)"
        )
    return min(
        served, key=lambda each: sum(one.spot.dollars_per_hour * one.quota for one in each.workers)
    )


def is_old(offer: Offer, today: date) -> bool:
    """Whether a price may be too old to be relied on, or is undated."""
    known = price_age(offer.as_of, today)
    return known is None or known.is_old


def _region_market(
    region: str | None,
    every: Sequence[Offer],
    quotas: Mapping[str, int],
    servers: int,
    start_seconds: float,
    needs_bytes: float | None,
) -> FleetMarket:
    here = sorted(
        (each for each in every if each.region in (region, None)),
        key=lambda each: each.dollars_per_hour,
    )
    spot: dict[str, Offer] = {}
    fixed: dict[str, Offer] = {}
    for offer in here:
        if offer.kind in ("spot", "on-demand"):
            (spot if offer.kind == "spot" else fixed).setdefault(offer.instance.name, offer)
    workers = tuple(
        PricedWorker(spot[name].instance, quota, spot[name], fixed.get(name))
        for name, quota in quotas.items()
        if name in spot
    )
    servers_here: list[ParameterServers] = []
    for offer in fixed.values():
        found = (
            _server_offer(offer, servers, needs_bytes) if offer.instance.gpu_count == 0 else None
        )
        if found is None or found.is_too_small:
            continue
        if not servers_here or found.bytes_per_second > servers_here[-1].bytes_per_second:
            servers_here.append(found)
    return FleetMarket(region, workers, tuple(servers_here), start_seconds)


def _server_offer(offer: Offer, servers: int, needs_bytes: float | None) -> ParameterServers | None:
    """``None`` where its network or its cores are unknown."""
    instance = offer.instance
    if not instance.network_bytes_per_second or not instance.vcpus:
        return None
    rate = network_rate(given_quantity(instance.network_bytes_per_second, instance.source), "tcp")
    if rate is None:
        return None
    return ParameterServers(
        count=servers,
        bytes_per_second=rate.value,
        dollars_per_hour=offer.dollars_per_hour,
        cores=max(1, int(instance.vcpus)),
        instance=instance.name,
        memory_bytes=instance.memory_bytes,
        needs_bytes=needs_bytes,
    )


def _explain_unpriced(found: Sequence[FleetMarket], quotas: Mapping[str, int]) -> str:
    somewhere = {each.instance.name for market in found for each in market.workers}
    missing = [name for name in quotas if name not in somewhere]
    if not missing:
        return f"no region has spot prices of all of {join_names(list(quotas))}; plan for types of one region"
    return (
        f"no spot price of {join_names(missing)} is known; drop it from --quota, get prices with `stash catalog "
        "refresh`, or write yours into your instances file (docs/how-to/own-instances.md)"
    )
