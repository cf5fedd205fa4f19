"""How people choose today, beside a plan: its own offers for the rules, and their picks weighed as it weighs its own.

Knows what rules are given and what becomes of what they pick; how they choose is theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stash.base.errors import UserError
from stash.base.plan import Choice, Goal, RuleChoice
from stash.derive.plan.candidates import Rentable
from stash.derive.plan.question import Field, RentalQuestion
from stash.derive.plan.rules import Offered, Picked, compare_rules, rule_facts
from stash.derive.plan.weighing import WHOLE, Chain, Weighed
from stash.keep.catalog import Catalog, GpuFacts


def ruled(
    question: RentalQuestion,
    field: Field,
    goal: Goal,
    catalog: Catalog,
    best: Choice | None,
    choice_of: Callable[[Weighed], Choice],
) -> tuple[RuleChoice, ...]:
    """What each rule would have rented of what can be forecast, and its regret beside ``best``."""
    known = field.types().keys() - question.weighing.unknown.keys()
    rentables = [rentable for rentable in field.market.rentables if rentable.key in known]
    offers = [_offered(rentable, catalog) for rentable in rentables]
    priced = {id(offer): rentable for offer, rentable in zip(offers, rentables, strict=True)}

    def weigh(picked: Picked) -> Choice | str:
        found = _cheapest(question, field, priced[id(picked.offer)], picked.nodes)
        return choice_of(found) if isinstance(found, Weighed) else found

    return compare_rules(offers, rule_facts(question.bases, goal, catalog), goal, weigh, best)


def _offered(rentable: Rentable, catalog: Catalog) -> Offered:
    return Offered(
        instance=rentable.instance,
        price=rentable.price,
        devices=rentable.devices,
        most_nodes=rentable.most_nodes,
        gpu=_gpu(rentable, catalog),
    )


def _gpu(rentable: Rentable, catalog: Catalog) -> GpuFacts | None:
    try:
        return None if rentable.device is None else catalog.gpu(rentable.device)
    except UserError:  # made in several variants, and no source says which it is
        return None


def _cheapest(question: RentalQuestion, field: Field, rentable: Rentable, nodes: int) -> Weighed | str:
    """So many of it with the settings that cost least, as the plan would run it there; else why nobody can tell."""
    found: list[Weighed] = []
    for chain in field.types().get(rentable.key, []):
        if chain.rentable is rentable and nodes in chain.shape.nodes:
            weighed = _weighed(question, chain, int(np.searchsorted(chain.shape.nodes, nodes)))
            found += [] if weighed is None else [weighed]
    if found:
        return min(found, key=lambda each: each.dollars)
    unknown = {**{f"{item.cloud}/{item.instance}": item for item in field.unranked}, **question.weighing.unknown}
    return (
        unknown[rentable.key].why if rentable.key in unknown else f"the job cannot be shared out over {nodes} of it"
    )


def _weighed(question: RentalQuestion, chain: Chain, number: int) -> Weighed | None:
    """``None`` where weighing it shows that nobody can."""
    while chain.stage[number] < WHOLE:
        if not np.isfinite(chain.least.dollars[number]):
            return None
        question.weighing.advance(chain, number)
    return question.weighing.weighed(chain, number)
