"""A study's targets as places: the catalog's instance behind each, and what an hour there costs by whose word.

Raises the file's own errors for an instance that is unknown and a price that is. Knows nothing of cells.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.api import Catalog, GpuFacts, Instance, gpu_variants
from stash.core.errors import UserError
from stash.study.study_file import EmulatedTarget, SkyTarget, SlurmTarget, StudyFile, StudyTarget


@dataclass(frozen=True)
class StudyPlace:
    """One target, and what is known of it."""

    name: str
    target: StudyTarget
    instance: Instance | None = None
    dollars_per_hour: float | None = None
    """Of one node, which is paid where it is rented, and else for figures; ``None``: unknown."""
    price_source: str = ""
    """Which price it is, of which date, by whose word."""
    gpus: tuple[GpuFacts, ...] = ()
    """Its GPU, or every variant that it can be; none where the catalog knows none."""


def find_places(file: StudyFile, catalog: Catalog) -> tuple[StudyPlace, ...]:
    """A place for every target, in the file's order; raises UserError naming line and field."""
    found: dict[str, StudyPlace] = {}
    for number, target in enumerate(file.study.targets):
        place = _place(file, number, target, catalog)
        if place.name in found:
            why = f"there are two targets called {place.name!r}; give one another `name:`"
            raise file.mistake(("targets", number, "name"), why)
        found[place.name] = place
    return tuple(found.values())


def _place(file: StudyFile, number: int, target: StudyTarget, catalog: Catalog) -> StudyPlace:
    price = target.price
    source = f"as given in {file.path.name}"
    cloud = region = None
    kind = "on-demand"
    name = "this machine"
    if isinstance(target, SlurmTarget):
        name = target.partition
    elif isinstance(target, SkyTarget):
        cloud = target.cloud
        region = target.region
        kind = "spot" if target.spot else "on-demand"
        name = f"{cloud} {target.accelerators}"
    if not isinstance(target, SkyTarget | EmulatedTarget) or target.instance is None:
        return StudyPlace(target.name or name, target, None, price, source)
    try:
        instance = catalog.instance(f"{cloud}/{target.instance}" if cloud else target.instance)
    except UserError as error:
        raise file.mistake(("targets", number, "instance"), str(error)) from None
    if price is None:
        # The cheapest that fits: SkyPilot, too, takes the cheapest region where none is named.
        offers = (
            offer
            for offer in catalog.offers_of(instance)
            if offer.kind == kind
            and (region is None or (offer.region or "").lower() == region.lower())
        )
        offer = next(offers, None)
        if offer is not None:
            price = offer.dollars_per_hour
            source = f"{kind} in {offer.region or 'a region not named'}, {offer.as_of or 'undated'} ({offer.source})"
        elif isinstance(target, SkyTarget):
            why = f"the catalog knows no {kind} price of {instance.name} in {region or 'any region'}; give `price:`"
            raise file.mistake(("targets", number), why)
    gpu = instance.gpu or instance.gpu_model
    known = {each for facts in catalog.gpus for each in (facts.name, facts.model)}
    gpus = gpu_variants(gpu, catalog) if gpu in known else ()
    return StudyPlace(target.name or instance.name, target, instance, price, source, gpus)
