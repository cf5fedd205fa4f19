"""A study's targets as places: the catalog's instance behind each, and what an hour there costs by whose word.

Raises the file's own errors for an instance that is unknown and a price that is. Knows nothing of cells.
"""

from __future__ import annotations

from dataclasses import dataclass

from stash.catalog.facts import GpuFacts, Instance, Offer
from stash.catalog.machines import variants
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.study.fields import EmulatedTarget, LocalTarget, SkyTarget, SlurmTarget, StudyTarget
from stash.study.study_file import StudyFile


@dataclass(frozen=True)
class StudyPlace:
    """One target, and what is known of it."""

    name: str
    target: StudyTarget
    instance: Instance | None = None
    dollars_per_hour: float | None = None
    """Of one node; ``None``: not paid for by time."""
    price_source: str = ""
    """Which price it is, of which date, by whose word."""
    list_dollars_per_hour: float | None = None
    """Of an emulated instance: what it would cost, for figures."""
    gpus: tuple[GpuFacts, ...] = ()
    """Of an emulated instance: its GPU, or every variant that it can be."""

    @property
    def devices(self) -> int | None:
        """Devices of a node; ``None`` if only the place itself can tell."""
        if self.target.devices is not None:
            return self.target.devices
        return None if self.instance is None or self.instance.gpu_count is None else self.instance.devices


def places(file: StudyFile, catalog: Catalog) -> tuple[StudyPlace, ...]:
    """A place for every target, in the file's order; raises UserError naming line and field."""
    found: list[StudyPlace] = []
    for number, target in enumerate(file.study.targets):
        place = _place(file, ("targets", number), target, catalog)
        if place.name in [other.name for other in found]:
            why = f"there are two targets called {place.name!r}; give one another `name:`"
            raise file.mistake(("targets", number, "name"), why)
        found.append(place)
    return tuple(found)


def _place(file: StudyFile, where: tuple[int | str, ...], target: StudyTarget, catalog: Catalog) -> StudyPlace:
    given, source = target.price, f"as given in {file.path.name}"
    if isinstance(target, LocalTarget):
        return StudyPlace(target.name or "this machine", target, None, given, source)
    if isinstance(target, SlurmTarget):
        return StudyPlace(target.name or target.partition, target, None, given, source)
    if target.instance is None:
        return StudyPlace(target.name or f"{target.cloud} {target.accelerators}", target, None, given, source)
    instance = _instance(file, (*where, "instance"), target, catalog)
    name = target.name or instance.name
    if isinstance(target, EmulatedTarget):
        listed = [offer for offer in catalog.offers_of(instance) if offer.kind == "on-demand"]
        price = listed[0].dollars_per_hour if listed else None
        gpu = instance.gpu or instance.gpu_model
        known = {each for facts in catalog.gpus for each in (facts.name, facts.model)}
        # None where the catalog knows no GPU of it; who needs one says so.
        gpus = variants(gpu, catalog) if gpu in known else ()
        return StudyPlace(name, target, instance, list_dollars_per_hour=price, gpus=gpus)
    if given is not None:
        return StudyPlace(name, target, instance, given, source)
    offer = _offer(target, instance, catalog)
    if offer is None:
        kind, region = "spot" if target.spot else "on-demand", target.region or "any region"
        raise file.mistake(where, f"the catalog knows no {kind} price of {instance.name} in {region}; give `price:`")
    source = f"{offer.kind} in {offer.region or 'a region not named'}, {offer.as_of or 'undated'} ({offer.source})"
    return StudyPlace(name, target, instance, offer.dollars_per_hour, source)


def _instance(
    file: StudyFile, where: tuple[int | str, ...], target: SkyTarget | EmulatedTarget, catalog: Catalog
) -> Instance:
    cloud = target.cloud if isinstance(target, SkyTarget) else None
    name = f"{cloud}/{target.instance}" if cloud else str(target.instance)
    try:
        return catalog.instance(name)
    except UserError as error:
        raise file.mistake(where, str(error)) from None


def _offer(target: SkyTarget, instance: Instance, catalog: Catalog) -> Offer | None:
    """The cheapest that fits: SkyPilot, too, takes the cheapest region where none is named."""
    kind = "spot" if target.spot else "on-demand"
    fits = [offer for offer in catalog.offers_of(instance) if offer.kind == kind]
    if target.region is not None:
        fits = [offer for offer in fits if (offer.region or "").lower() == target.region.lower()]
    return fits[0] if fits else None
