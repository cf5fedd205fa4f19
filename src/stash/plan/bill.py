"""What a training costs on rented machines, item by item and stall by stall, in every draw.

    wall    = start-up + first epoch + training                     seconds, the same on every node
    dollars = nodes · price · (wall, rounded up as the cloud bills) + disks + data that leave

Every item is an array of draws, ``[draws]``, and the items add up to the bill in each of them. What a stall costs is
its seconds at the same price, so that the stalls' dollars add up to those of *training*; a negative stall stays
negative. Facts that were not given are not counted, and ``not_counted`` says which. Knows nothing of deadlines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from pydantic import Field

from stash.catalog.reference import Tariff
from stash.core.formatting import format_span, join_names
from stash.core.intervals import Interval
from stash.core.records.base import Number, Record
from stash.core.units import MONTH_HOURS
from stash.plan.records import BillItem, HourlyPrice, PlanFact, Rental, StallShare
from stash.predict.draws import OUTSIDE, Array, Draws, Used, intervals
from stash.predict.forecast import PredictedStall, StallDraws

HOUR = 3600.0
MONTH = MONTH_HOURS * HOUR
"""The month that clouds price disks by: 8,760 hours by 12 (AWS EBS pricing, Google Cloud disk pricing)."""
GB = 1e9

ItemName = Literal["training", "start-up", "first epoch", "rounding", "disk", "egress"]


class BillFacts(Record):
    """What a bill needs besides forecast and price; ``None`` is not counted."""

    start_seconds: Interval | None = None
    """From the order to a machine that is up; pulling the image and getting the data follow."""
    image_bytes: Number | None = Field(None, ge=0)
    dataset_bytes: Number | None = Field(None, ge=0)
    """Every node gets a copy of its own."""
    download_bytes_per_second: Number | None = Field(None, gt=0)
    """Of a node; for image and data, one after the other."""
    data_in: str | None = None
    """The cloud that the data lie in: machines in others pay egress, once a node."""
    tariffs: Mapping[str, Tariff] = Field(default_factory=dict)
    """By cloud."""


@dataclass(frozen=True, eq=False)
class BillPart:
    """One item as draws, ``[draws]``."""

    name: ItemName
    seconds: Array
    dollars: Array
    text: str
    seconds_known: bool
    """Whether these draws hold all there is to be uncertain about."""
    dollars_known: bool


@dataclass(frozen=True, eq=False)
class Bill:
    """One training on one rental; records are made only of those that are shown."""

    parts: tuple[BillPart, ...]
    predicted: tuple[PredictedStall, ...]
    """The step's stalls."""
    stall_dollars: tuple[Array, ...]
    """Of each of those over the whole training."""
    step: Array

    @cached_property
    def seconds(self) -> Array:
        """Seconds from start to end, ``[draws]``."""
        total: Array = np.sum([part.seconds for part in self.parts], axis=0)
        return total

    @cached_property
    def dollars(self) -> Array:
        """``[draws]``."""
        total: Array = np.sum([part.dollars for part in self.parts], axis=0)
        return total

    @property
    def seconds_interval(self) -> Interval:
        """Without ends where the spread of a part is not known."""
        return _intervals([(self.seconds, all(part.seconds_known for part in self.parts))])[0]

    @property
    def dollars_interval(self) -> Interval:
        """Likewise."""
        return _intervals([(self.dollars, all(part.dollars_known for part in self.parts))])[0]

    @cached_property
    def items(self) -> tuple[BillItem, ...]:
        """The items in the order of the formula; one that is not counted is left out."""
        seconds = _intervals([(part.seconds, part.seconds_known) for part in self.parts])
        dollars = _intervals([(part.dollars, part.dollars_known) for part in self.parts])
        return tuple(
            BillItem(name=part.name, seconds=lasts, dollars=costs, text=part.text)
            for part, lasts, costs in zip(self.parts, seconds, dollars, strict=True)
        )

    @cached_property
    def stalls(self) -> tuple[StallShare, ...]:
        """Each stall's share, in the forecast's order."""
        step, known = float(self.step.mean()), [part.spread_known for part in self.predicted]
        seconds = _intervals(
            list(zip([part.seconds for part in self.predicted], known, strict=True))
        )
        dollars = _intervals(list(zip(self.stall_dollars, known, strict=True)))
        return tuple(
            StallShare(
                name=part.name,
                seconds=lasts,
                share=lasts.value / step,
                dollars=costs,
                origin=part.origin,
                facts=tuple(map(plan_fact, part.facts)),
            )
            for part, lasts, costs in zip(self.predicted, seconds, dollars, strict=True)
        )


def make_bill(
    stalls: StallDraws,
    steps: float,
    rental: Rental,
    facts: BillFacts,
    first_epoch_seconds: Array | None,
    draws: Draws,
) -> Bill:
    """The bill of ``steps`` steps on ``rental``.

    ``first_epoch_seconds`` are those that the first epoch takes more than the others, ``[draws]``: its data are not
    in memory yet. ``None``: not counted.
    """
    per_second = (
        hourly_cost(rental.price, f"{rental.cloud}/{rental.instance}", draws) * rental.nodes / HOUR
    )
    parts = []

    def add_time(name: ItemName, seconds: Array, text: str, known: bool) -> None:
        parts.append(BillPart(name, seconds, seconds * per_second, text, known, known))

    known = all(part.spread_known for part in stalls.parts)
    start = _start_time(stalls, facts, draws)
    if start is not None:
        add_time("start-up", *start)
    if first_epoch_seconds is not None:
        add_time(
            "first epoch",
            first_epoch_seconds,
            "what reading data takes longer until memory caches them",
            known,
        )
    at = f"{rental.nodes} × ${rental.price.dollars_per_hour.value:,.4g}/h"
    add_time(
        "training",
        steps * stalls.step,
        f"{steps:,.0f} steps of {stalls.step.mean():,.4g} s at {at}",
        known,
    )
    wall: Array = np.sum([part.seconds for part in parts], axis=0)
    parts += _timeless_items(
        wall, all(part.seconds_known for part in parts), per_second, rental, facts
    )
    return Bill(
        parts=tuple(parts),
        predicted=stalls.parts,
        stall_dollars=tuple(steps * part.seconds * per_second for part in stalls.parts),
        step=stalls.step,
    )


def hourly_cost(asked: HourlyPrice, of: str, draws: Draws) -> Array:
    """Dollars of one instance for an hour, ``[draws]``, or ``[1]`` where all draws are one; ``of`` names the type.

    The same however many are rented.

    A list price holds or it has changed; it does not drift. So the draws beyond the ends of its interval are at the
    ends, and all others at the price. Where nothing says how it moves, the bill is that at the listed price.
    """
    price = asked.dollars_per_hour
    if price.low is None or price.high is None or price.low == price.high:
        return np.array([price.value])
    drawn = draws.uniforms(f"price of {of}")
    if asked.paid_as == "spot":  # anywhere between: a price of other days says no more
        return np.asarray(price.low + drawn * (price.high - price.low))
    # One draw more than lies outside, so that the interval of the draws has these ends again.
    outside = (int(OUTSIDE * draws.count) + 1) / draws.count
    return np.where(
        drawn < outside, price.low, np.where(drawn > 1 - outside, price.high, price.value)
    )


def _start_time(
    stalls: StallDraws, facts: BillFacts, draws: Draws
) -> tuple[Array, str, bool] | None:
    """Seconds until training starts, what they are, and whether their spread is known; ``None`` if unstated."""
    seconds, sentences, known = np.zeros(draws.count), [], True
    if facts.start_seconds is not None:
        seconds = seconds + draws.draw("start-up", facts.start_seconds)
        sentences.append(f"{format_span(facts.start_seconds.value)} until machines are up")
        known = facts.start_seconds.low is not None
    rate, network = facts.download_bytes_per_second, stalls.target.network
    if rate is not None and network is not None and network.bytes_per_second is not None:
        rate = min(rate, network.bytes_per_second.value)  # never more than its own network takes
    for what, size in (("image", facts.image_bytes), ("data", facts.dataset_bytes)):
        if size is not None and rate is not None:
            seconds = seconds + size / rate
            sentences.append(f"{size / GB:,.4g} GB of {what} at {rate / 1e6:,.4g} MB/s")
    return (seconds, ", ".join(sentences), known) if sentences else None


def _timeless_items(
    wall: Array, wall_known: bool, per_second: Array, rental: Rental, facts: BillFacts
) -> list[BillPart]:
    """Items that take no time: what rounding, disks and data that leave add to ``wall`` seconds."""
    nothing = np.zeros_like(wall)
    items: list[BillPart] = []

    def add_cost(name: ItemName, dollars: Array, text: str, known: bool) -> None:
        items.append(BillPart(name, nothing, dollars, text, True, known))

    tariff = facts.tariffs.get(rental.cloud)
    if (
        rental.price.paid_as != "own"
        and tariff is not None
        and tariff.billed_by_seconds is not None
    ):
        by = tariff.billed_by_seconds.value
        least = 0.0 if tariff.least_seconds is None else tariff.least_seconds.value
        idle = round_up_seconds(wall, by, least) - wall
        text = f"{rental.cloud} bills by {by:,.0f} s, {least:,.0f} s at least"
        add_cost("rounding", idle * per_second, text, wall_known)
    disk = _disk(rental, facts)
    if disk is not None:
        size, rate = disk
        text = f"{rental.nodes} × {size / GB:,.4g} GB at ${rate:,.4g} per GB and month"
        add_cost("disk", rental.nodes * size / GB * rate * wall / MONTH, text, wall_known)
    egress = _egress(rental, facts)
    if egress is not None:
        size, rate = egress
        text = f"{rental.nodes} × {size / GB:,.4g} GB of data at ${rate:,.4g} per GB"
        add_cost("egress", nothing + rental.nodes * size / GB * rate, text, True)
    return items


def round_up_seconds(seconds: Array, by: float, least: float) -> Array:
    """Seconds that are paid for: whole multiples of ``by``, and ``least`` at any rate."""
    # What an hour's worth of steps adds up to may exceed the hour by its last bit.
    whole: Array = np.ceil(seconds / by - 1e-9) * by
    return np.maximum(whole, least)


def _disk(rental: Rental, facts: BillFacts) -> tuple[float, float] | None:
    """Bytes of a node (image and data) and dollars per GB and month; one's own machines have their disks already."""
    tariff = facts.tariffs.get(rental.cloud)
    if rental.price.paid_as == "own" or facts.dataset_bytes is None:
        return None
    if tariff is None or tariff.disk_dollars_per_gb_month is None:
        return None
    return facts.dataset_bytes + (facts.image_bytes or 0.0), tariff.disk_dollars_per_gb_month.value


def _egress(rental: Rental, facts: BillFacts) -> tuple[float, float] | None:
    """Bytes of a node and dollars per GB."""
    if facts.dataset_bytes is None or rental.cloud == facts.data_in:
        return None
    home = facts.tariffs.get(facts.data_in or "")
    if home is None or home.egress_dollars_per_gb is None:
        return None
    return facts.dataset_bytes, home.egress_dollars_per_gb.value


def not_counted(facts: BillFacts, rentals: Sequence[Rental], first_epoch: bool) -> tuple[str, ...]:
    """What bills of these rentals leave out, in sentences; ``first_epoch``: whether its reading is counted."""
    left = []
    if facts.start_seconds is None:
        left.append("how long machines take to start is not counted (--start 5m)")
    no_rate = "for want of a rate (--download 500MB/s)"
    if facts.image_bytes is None:
        left.append("pulling an image is not counted (--image-size 20GB)")
    elif facts.download_bytes_per_second is None:
        left.append(f"pulling the image is not counted, {no_rate}")
    if facts.dataset_bytes is None:
        left.append("getting the data to the machines is not counted: their size was not given")
    elif facts.download_bytes_per_second is None:
        left.append(f"getting the data to the machines is not counted, {no_rate}")
    if not first_epoch:
        left.append(
            "the first epoch is taken to be as fast as the others, though its data are not in memory yet"
        )
    rented = [rental for rental in rentals if rental.price.paid_as != "own"]
    clouds = sorted({rental.cloud for rental in rented})
    tariffs = {name: facts.tariffs.get(name) for name in clouds}
    unrounded = [name for name, each in tariffs.items() if not (each and each.billed_by_seconds)]
    diskless = sorted({rental.cloud for rental in rented if _disk(rental, facts) is None})
    if unrounded:
        left.append(
            f"{join_names(unrounded)} may round use up: how is in no source, and not counted"
        )
    if diskless:
        why = (
            "the data's size was not given"
            if facts.dataset_bytes is None
            else "their price is in no source"
        )
        left.append(f"disks of {join_names(diskless)} are not counted: {why}")
    if facts.data_in is None:
        left.append(
            "data that leave a cloud are not counted: where they lie was not given (--data-in aws)"
        )
    elif facts.dataset_bytes is not None and any(
        _egress(rental, facts) is None and rental.cloud != facts.data_in for rental in rentals
    ):
        left.append(f"data that leave {facts.data_in} are not counted: their price is in no source")
    if any(rental.price.paid_as == "spot" for rental in rented):
        left.append(
            "interruptions of spot instances are not counted: how often they come is not known here, and each costs "
            "what was trained since the last checkpoint (`stash spot guard` saves one when the node gets notice)"
        )
    return tuple(left)


@lru_cache(maxsize=1024)
def plan_fact(used: Used) -> PlanFact:
    """A forecast's fact as a plan keeps it."""
    fact = used.quantity
    return PlanFact(
        about=used.about,
        unit=used.unit,
        value=fact.value,
        low=fact.low,
        high=fact.high,
        origin=fact.origin,
        as_of=fact.as_of,
        source=fact.source,
    )


def _intervals(drawn: Sequence[tuple[Array, bool]]) -> tuple[Interval, ...]:
    """Of each that is drawn, ``[draws]``; without ends where its spread is not known."""
    found = intervals(np.array([each for each, _ in drawn]))
    return tuple(
        each if known else Interval(value=each.value)
        for each, (_, known) in zip(found, drawn, strict=True)
    )
