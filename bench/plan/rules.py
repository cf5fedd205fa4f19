"""How people choose machines today, as rules that stand next to the product's choices.

A rule sees prices and what a profile's owner knows, and never a forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stash.catalog.facts import Instance
from stash.plan.records import HourlyPrice


@dataclass(frozen=True)
class Offered:
    """An instance at a price, with its GPU's data sheet."""

    instance: Instance
    price: HourlyPrice
    devices: int
    """Of a node."""
    most_nodes: int

    @property
    def key(self) -> str:
        return f"{self.instance.cloud}/{self.instance.name}"

    @property
    def dollars_per_hour(self) -> float:
        """Dollars an hour of a node."""
        return self.price.dollars_per_hour.value


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
    deadline_seconds: float | None = None
    budget_dollars: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    """Samples per second of one GPU by itself, by GPU model: the profiled one's times published ratios."""
    measured: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """Samples per second of the whole job where it was profiled, by instance type and nodes."""


def skypilot(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """SkyPilot's optimizer: an hour's work on every machine, so the cheapest hour of what was asked for.

    The user names accelerators, how many a node has, and the number of nodes; several kinds may be named, and here
    all are. Where nothing has as many in a node as the job was profiled on, as many in all are asked for. Run time is
    what the task's time estimator says, and one hour without one, whatever the resource; cost is nodes · price · run
    time. Source: ``sky/optimizer.py``,
    ``Optimizer._estimate_nodes_cost_or_time``, github.com/skypilot-org/skypilot at 005b1cb, read on 2026-11-22.
    """

    total = facts.nodes * facts.devices
    together = [Picked(offer, total // offer.devices) for offer in offers if total % offer.devices == 0]
    possible = [picked for picked in together if picked.nodes <= picked.offer.most_nodes]
    asked = [picked for picked in possible if picked.nodes == facts.nodes] or possible
    if not asked:
        return f"nothing that is offered has {total} devices in all, as the job was profiled on"
    return min(asked, key=lambda picked: (picked.dollars_per_hour, picked.nodes, picked.offer.key))


def linear(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The cheapest sample of a single GPU by its throughput, n GPUs taken to be n times as fast as one.

    As few nodes as meet the deadline; without one but with a budget the soonest within it; with neither one node, as
    on a line more of them cost the same. Where nothing keeps what was asked, the soonest of all.
    """
    lines = []
    for offer in offers:
        if rate := facts.rates.get(offer.instance.gpu_model or ""):
            alone = facts.samples / (rate * offer.devices)
            counts = {1, offer.most_nodes}  # besides the least that meets the deadline, none else is ever chosen
            if facts.deadline_seconds is not None:
                counts.add(max(1, math.ceil(alone / facts.deadline_seconds)))
            dollars = alone / 3600 * offer.dollars_per_hour
            lines += [(alone / n, dollars, Picked(offer, n)) for n in sorted(counts) if n <= offer.most_nodes]
    if not lines:
        return "no throughput was published or measured of a single one of the GPUs that are offered"
    return _best(lines, facts)


def stash_table(offers: Sequence[Offered], facts: RuleFacts) -> Picked | str:
    """The original Stash: of the machines that the job was measured on, the cheapest that is within the time given.

    Its recommendation is measurement-based: every instance of its grid runs the job, cost is T · price, and users
    lower it "given a time budget" (arXiv 2208.14344; ICDCS 2023). What was not measured is never recommended. Without
    a time budget it is the cheapest, with a budget alone the soonest within it, and where nothing keeps what was
    asked the soonest of all.
    """
    table = [
        (facts.samples / rate, facts.samples / rate / 3600 * nodes * offer.dollars_per_hour, Picked(offer, nodes))
        for offer in offers
        for (name, nodes), rate in facts.measured.items()
        if name == offer.instance.name and nodes <= offer.most_nodes
    ]
    if not table:
        return "the job was profiled on none of the machines that are offered, and this rule knows no others"
    return _best(table, facts)


def _best(lines: Sequence[tuple[float, float, Picked]], facts: RuleFacts) -> Picked:
    """Of (seconds, dollars, pick) the cheapest that keeps deadline and budget; else the soonest."""
    late, dear = facts.deadline_seconds, facts.budget_dollars
    kept = [line for line in lines if (late is None or line[0] <= late) and (dear is None or line[1] <= dear)]
    if not kept or (late is None and dear is not None):
        return min(kept or lines, key=lambda line: (line[0], line[1], line[2].offer.key))[2]
    return min(kept, key=lambda line: (line[1], line[2].nodes, line[2].offer.key))[2]


class ChoiceRule(NamedTuple):
    """One way to choose: what it would rent, or why it can choose nothing."""

    name: str
    text: str
    """How, in a few words."""
    chooses: Callable[[Sequence[Offered], RuleFacts], Picked | str]


RULES = (
    ChoiceRule(
        "SkyPilot",
        "nodes and devices as profiled, at the cheapest hour: every machine is taken to need one",
        skypilot,
    ),
    ChoiceRule("linear", "one GPU's throughput for a dollar, n of them n times as fast", linear),
    ChoiceRule(
        "original Stash", "the cheapest within the deadline of the machines that the job was measured on", stash_table
    ),
)
