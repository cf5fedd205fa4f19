"""How people choose machines today, as rules: prices, peaks, linear scaling, what was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stash.catalog.facts import GpuFacts, Instance
from stash.plan.records import HourlyPrice
from stash.predict.gpu_pairs import PRECISIONS

# Offered ---------------------------------------------------------------------------------------------------
# What a rule is given and what it answers: offers with their data sheets, the job's own facts, and a pick of them.
#
# There is no forecast here, so that no rule can look at one. Whatever a rule's users would not know is not a field.


@dataclass(frozen=True)
class Offered:
    """An instance at a price, with its GPU's data sheet."""

    instance: Instance
    price: HourlyPrice
    devices: int
    """Of a node."""
    most_nodes: int
    gpu: GpuFacts | None = None
    """``None`` without GPUs, and where no source says which it is."""

    @property
    def key(self) -> str:
        return f"{self.instance.cloud}/{self.instance.name}"

    @property
    def dollars_per_hour(self) -> float:
        """Of a node."""
        return self.price.dollars_per_hour.value

    def peak(self, precision: str) -> float | None:
        """FLOP/s of one GPU on its data sheet as frameworks run this precision, without sparsity."""
        gpu = self.gpu
        if gpu is None:
            return None
        fp32 = gpu.tensor_tf32_flops_per_second or gpu.fp32_flops_per_second
        if precision == PRECISIONS[0]:
            return fp32
        return gpu.tensor_fp16_flops_per_second or gpu.fp16_flops_per_second or fp32


class Picked(NamedTuple):
    """So many of an offer."""

    offer: Offered
    nodes: int

    @property
    def dollars_per_hour(self) -> float:
        return self.nodes * self.offer.dollars_per_hour


@dataclass(frozen=True)
class RuleFacts:
    """What those who follow a rule know of their job."""

    samples: float
    """Of the whole training."""
    nodes: int
    devices: int
    """Of a node: what the job ran on when it was profiled, which is what people ask for again."""
    precision: str = PRECISIONS[0]
    """``fp32`` or ``amp``."""
    deadline_seconds: float | None = None
    budget_dollars: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    """Samples per second of one GPU by itself, by GPU model: the profiled one's times published ratios."""
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Samples per second of the whole job where it was profiled, by instance type and nodes."""
    trial_seconds: float | None = None
    """What one measurement takes."""


Chooses = Callable[["list[Offered]", RuleFacts], "Picked | str"]
"""A rule: what it would rent, or why it can choose nothing."""


# Linear ----------------------------------------------------------------------------------------------------
# The rule that takes n GPUs to be n times one: throughput of a single GPU for a dollar, scaled linearly.


class _Scaled(NamedTuple):
    """So many of an offer, as a straight line has it."""

    picked: Picked
    seconds: float
    dollars: float


def linear(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The cheapest sample of a single GPU by published throughputs, and as few nodes as meet the deadline on a line.

    Without a deadline but with a budget, the soonest within it; with neither, one node, as on a line more of them
    cost the same. Where nothing keeps what was asked, the soonest of all.
    """
    scaled = [each for offer in offers for each in _of(offer, facts)]
    if not scaled:
        return "no throughput was published or measured of a single one of the GPUs that are offered"
    kept = [each for each in scaled if _keeps(each, facts)]
    if not kept or (facts.deadline_seconds is None and facts.budget_dollars is not None):
        return min(kept or scaled, key=lambda each: (each.seconds, each.dollars, each.picked.offer.key)).picked
    return min(kept, key=lambda each: (each.dollars, each.picked.nodes, each.picked.offer.key)).picked


def _of(offer: Offered, facts: RuleFacts) -> list[_Scaled]:
    """Few node counts are ever chosen: one, the least that meets the deadline, and the most there are."""
    rate = facts.rates.get(offer.instance.gpu_model or "")
    if not rate:
        return []
    alone = facts.samples / (rate * offer.devices)
    counts = {1, offer.most_nodes}
    if facts.deadline_seconds is not None:
        counts.add(max(1, math.ceil(alone / facts.deadline_seconds)))
    dollars = alone / 3600 * offer.dollars_per_hour
    return [_Scaled(Picked(offer, n), alone / n, dollars) for n in sorted(counts) if n <= offer.most_nodes]


def _keeps(each: _Scaled, facts: RuleFacts) -> bool:
    on_time = facts.deadline_seconds is None or each.seconds <= facts.deadline_seconds
    return on_time and (facts.budget_dollars is None or each.dollars <= facts.budget_dollars)


# Measuring -------------------------------------------------------------------------------------------------
# Rules that rent nothing but what was measured: the original Stash's table, and trying out everything.


def stash_table(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The original Stash: of the machines that the job was measured on, the cheapest that is within the time given.

    Its recommendation is measurement-based: every instance of its grid runs the job, cost is T · price, and users
    lower it "given a time budget" (arXiv 2208.14344; ICDCS 2023). What was not measured is never recommended. Without
    a time budget it is the cheapest, with a budget alone the soonest within it, and where nothing keeps what was
    asked the soonest of all.
    """
    table = list(_table(offers, facts))
    if not table:
        return "the job was profiled on none of the machines that are offered, and this rule knows no others"
    on_time = [row for row in table if facts.deadline_seconds is None or row[0] <= facts.deadline_seconds]
    kept = [row for row in on_time if facts.budget_dollars is None or row[1] <= facts.budget_dollars]
    soonest = not kept or (facts.deadline_seconds is None and facts.budget_dollars is not None)
    if soonest:
        return min(kept or table, key=lambda row: (row[0], row[1]))[2]
    return min(kept, key=lambda row: (row[1], row[0]))[2]


def _table(offers: Sequence[Offered], facts: RuleFacts) -> Iterator[tuple[float, float, Picked]]:
    """Seconds, dollars, and of what, for each measured machine that is offered."""
    for offer in offers:
        for (name, nodes), rate in facts.measured.items():
            if name == offer.instance.name and nodes <= offer.most_nodes:
                picked, seconds = Picked(offer, nodes), facts.samples / rate
                yield seconds, seconds / 3600 * picked.dollars_per_hour, picked


def trials_dollars(offers: Sequence[Offered], facts: RuleFacts) -> float | None:
    """What it costs to measure the job once on every machine at every number of nodes; ``None`` if a trial's length
    is unknown. The time that machines take to start comes on top and is not counted.
    """
    if facts.trial_seconds is None:
        return None
    per_hour = sum(
        offer.dollars_per_hour * offer.most_nodes * (offer.most_nodes + 1) / 2 for offer in _machines(offers)
    )
    return per_hour * facts.trial_seconds / 3600


def trials(offers: Sequence[Offered]) -> int:
    """How many measurements those are."""
    return sum(offer.most_nodes for offer in _machines(offers))


def _machines(offers: Sequence[Offered]) -> list[Offered]:
    """Each type once, at its lowest price: what one costs does not change how fast it is."""
    found: dict[str, Offered] = {}
    for offer in sorted(offers, key=lambda offer: offer.dollars_per_hour):
        found.setdefault(offer.key, offer)
    return list(found.values())


# Peaks -----------------------------------------------------------------------------------------------------
# Rules that look at peak FLOP/s on data sheets, and take jobs to reach as much of it everywhere.

_UNKNOWN = "no offer's GPU has a peak on its data sheet"


def fastest_gpu(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The GPU of most peak FLOP/s, in the machine that has it for the least money an hour."""
    known = _known(offers, facts)
    if not known:
        return _UNKNOWN
    most = max(known.values())
    fastest = [offers[number] for number, peak in known.items() if peak == most]
    return Picked(min(fastest, key=lambda offer: (offer.dollars_per_hour, -offer.devices, offer.key)), 1)


def flops_per_dollar(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of most peak FLOP/s of all its GPUs for a dollar an hour.

    More machines have no better ratio, so one is rented; of machines alike in it the smallest.
    """
    known = _known(offers, facts)
    if not known:
        return _UNKNOWN

    def dearness(number: int) -> tuple[float, int, str]:
        offer = offers[number]
        return offer.dollars_per_hour / (offer.devices * known[number]), offer.devices, offer.key

    return Picked(offers[min(known, key=dearness)], 1)


def _known(offers: Sequence[Offered], facts: RuleFacts) -> dict[int, float]:
    """Peaks of one GPU by the number of the offer, of those that have one."""
    peaks = {number: offer.peak(facts.precision) for number, offer in enumerate(offers)}
    return {number: peak for number, peak in peaks.items() if peak}


# Prices ----------------------------------------------------------------------------------------------------
# Rules that look at the price of an hour and take every hour to be worth as much.

_NOTHING = "nothing is offered"


def cheapest_per_hour(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """One machine of the lowest hourly price; of equally cheap ones that with most devices."""
    cheapest = min(offers, key=lambda offer: (offer.dollars_per_hour, -offer.devices, offer.key), default=None)
    return _NOTHING if cheapest is None else Picked(cheapest, 1)


def skypilot(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """SkyPilot's optimizer: an hour's work on every machine, so the cheapest hour of what was asked for.

    The user names accelerators, how many a node has, and the number of nodes; several kinds may be named, and here
    all are. Where nothing has as many in a node as the job was profiled on, as many in all are asked for. Run time is
    what the task's time estimator says, and one hour without one, whatever the resource; cost is nodes · price · run
    time, in which nodes that are reserved already are free. Source: ``sky/optimizer.py``,
    ``Optimizer._estimate_nodes_cost_or_time``, github.com/skypilot-org/skypilot at 005b1cb, read on 2026-11-22.
    """
    total = facts.nodes * facts.devices
    together = [Picked(offer, total // offer.devices) for offer in offers if total % offer.devices == 0]
    possible = [picked for picked in together if picked.nodes <= picked.offer.most_nodes]
    asked = [picked for picked in possible if picked.nodes == facts.nodes] or possible
    if not asked:
        return f"nothing that is offered has {total} devices in all, as the job was profiled on"
    return min(asked, key=lambda picked: (_hour(picked), picked.nodes, picked.offer.key))


def _hour(picked: Picked) -> float:
    return 0.0 if picked.offer.price.paid_as == "reserved" else picked.dollars_per_hour
