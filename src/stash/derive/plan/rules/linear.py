"""The rule that takes n GPUs to be n times one: throughput of a single GPU for a dollar, scaled linearly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stash.derive.plan.rules.offered import Offered, Picked, RuleFacts


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
