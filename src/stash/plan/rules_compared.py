"""Those rules beside a plan: what each would have rented, and its regret by the plan's own forecast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from stash.analysis.findings.machine import model_of
from stash.catalog.facts import GpuFacts
from stash.catalog.offers import Catalog
from stash.catalog.reference import model_key
from stash.core.errors import UserError
from stash.plan.candidates import Rentable
from stash.plan.evaluation import WHOLE, CandidateChain, Evaluation
from stash.plan.records import Choice, Goal, RuleChoice
from stash.plan.rules import (
    Chooses,
    Offered,
    Picked,
    RuleFacts,
    cheapest_per_hour,
    fastest_gpu,
    flops_per_dollar,
    linear,
    skypilot,
    stash_table,
    trials,
    trials_dollars,
)
from stash.plan.search import CandidateSet, PlanProblem
from stash.predict.gpu_pairs import by_model, pairs
from stash.predict.passes import Base

# Compared --------------------------------------------------------------------------------------------------
# Every rule beside a plan: what it would have rented, what that does by the plan's own forecast, and its regret.
#
# A rule chooses before anything is forecast for it; its pick is then weighed like any candidate. So regret is of
# the choice alone, and as sure as the forecasts of both. Exhaustive search has no rule to choose by: it finds
# whatever is best, and its regret is what measuring everything costs.


class ChoiceRule(NamedTuple):
    """One way to choose."""

    name: str
    text: str
    """How, in a few words."""
    chooses: Chooses


RULES: tuple[ChoiceRule, ...] = (
    ChoiceRule("cheapest per hour", "one machine of the lowest hourly price", cheapest_per_hour),
    ChoiceRule("fastest GPU", "the GPU of most peak FLOP/s, in its cheapest machine", fastest_gpu),
    ChoiceRule("FLOPs per dollar", "most peak FLOP/s for a dollar an hour", flops_per_dollar),
    ChoiceRule(
        "SkyPilot",
        "nodes and devices as profiled, at the cheapest hour: every machine is taken to need one",
        skypilot,
    ),
    ChoiceRule("linear", "one GPU's published throughput for a dollar, n of them n times as fast", linear),
    ChoiceRule(
        "original Stash", "the cheapest within the deadline of the machines that the job was measured on", stash_table
    ),
)
EXHAUSTIVE = "exhaustive search"


def compare_rules(
    offers: Sequence[Offered],
    facts: RuleFacts,
    goal: Goal,
    weigh: Callable[[Picked], Choice | str],
    best: Choice | None,
) -> tuple[RuleChoice, ...]:
    """What each rule would have rented of ``offers``, beside ``best``, the plan's choice if it has one.

    ``weigh`` is the forecast of a pick with the job's settings as the plan would run it there, or why there is none.
    """
    named = [_of_rule(rule, list(offers), facts, goal, weigh, best) for rule in RULES]
    return (*named, _exhaustive(offers, facts, best))


def _of_rule(
    rule: ChoiceRule,
    offers: list[Offered],
    facts: RuleFacts,
    goal: Goal,
    weigh: Callable[[Picked], Choice | str],
    best: Choice | None,
) -> RuleChoice:
    picked = rule.chooses(offers, facts)
    if isinstance(picked, str):
        return RuleChoice(rule=rule.name, text=rule.text, choice=None, why=picked)
    choice = weigh(picked)
    if isinstance(choice, str):
        rented = f"{picked.nodes} × {picked.offer.instance.name}"
        return RuleChoice(rule=rule.name, text=rule.text, choice=None, why=f"it rents {rented}: {choice}")
    return RuleChoice(
        rule=rule.name,
        text=rule.text,
        choice=choice,
        dollars_more=None if best is None else choice.dollars.value - best.dollars.value,
        seconds_more=None if best is None else choice.seconds.value - best.seconds.value,
        feasible=not any(_broken(choice, goal)),
    )


def _broken(choice: Choice, goal: Goal) -> Iterator[bool]:
    """Whether the choice breaks the deadline, and the budget."""
    if goal.deadline_seconds is not None:
        yield choice.on_time is not None and choice.on_time < goal.confidence
    if goal.budget_dollars is not None:
        yield choice.within_budget is not None and choice.within_budget < goal.confidence


def _exhaustive(offers: Sequence[Offered], facts: RuleFacts, best: Choice | None) -> RuleChoice:
    count, dollars = trials(offers), trials_dollars(offers, facts)
    text = f"measure the job on every type with every number of nodes ({count:,} trials), then take the best"
    if best is None:
        return RuleChoice(rule=EXHAUSTIVE, text=text, choice=None, why="nothing that is offered keeps what was asked")
    return RuleChoice(
        rule=EXHAUSTIVE,
        text=text,
        choice=best,
        dollars_more=dollars,
        seconds_more=facts.trial_seconds,
        feasible=True,
    )


# Read ------------------------------------------------------------------------------------------------------
# What the users of rules know of their job, read from its profiles and from published tables.
#
# A profile gives what anybody can time: how fast one device trains by itself, and the whole job where it ran. Other
# GPUs' speeds are published ratios to the profiled one, of the same model where there are some.

_AMP = ("float16", "bfloat16")


def rule_facts(bases: Sequence[Base], goal: Goal, catalog: Catalog) -> RuleFacts:
    """Of the profiles of one job, one at least; the first is what people ask for again."""
    first = bases[0]
    precision = "amp" if first.profile.workload.precision in _AMP else "fp32"
    return RuleFacts(
        samples=goal.work.samples,
        nodes=first.target.nodes,
        devices=first.target.devices,
        precision=precision,
        deadline_seconds=goal.deadline_seconds,
        budget_dollars=goal.budget_dollars,
        rates=_rates(bases, precision, catalog),
        measured=_measured(bases),
        trial_seconds=first.profile.elapsed_seconds,
    )


def _rates(bases: Sequence[Base], precision: str, catalog: Catalog) -> dict[str, float]:
    """Samples per second of one GPU, by model: measured where it was, else by published ratios to the first one's."""
    own = {model: rate for base in bases if (model := _model(base, catalog)) and (rate := _alone(base))}
    if not own:
        return {}
    first, rate = next(iter(own.items()))
    published = {
        gpu.model: rate * math.exp(-ratio)
        for gpu in catalog.gpus
        if (ratio := _ratio(first, gpu.model, precision, bases[0].profile.workload.name)) is not None
    }
    return {**published, **own}


def _ratio(first: str, second: str, precision: str, workload: str) -> float | None:
    """ln(seconds on the second / on the first): of this model if it was published, else the mean over models."""
    found = pairs(first, second, precision)
    same = [pair for pair in found if pair.model == model_key(workload)]
    return by_model(same or found) if found else None


def _model(base: Base, catalog: Catalog) -> str | None:
    """The profiled GPU's model, as clouds call it."""
    host = base.profile.hosts[0] if base.profile.hosts else None
    return None if base.target.device is None or host is None or not host.gpus else model_of(host.gpus[0], catalog)


def _alone(base: Base) -> float | None:
    """Samples per second of one device by itself, on replayed batches."""
    samples, seconds = base.breakdown.samples_per_step, base.breakdown.seconds("compute", "transfer")
    return None if not samples or seconds <= 0 else samples / base.breakdown.world_size / seconds


def _measured(bases: Sequence[Base]) -> dict[tuple[str, int], float]:
    found = {}
    for base in bases:
        instance = base.profile.hosts[0].instance if base.profile.hosts else None
        rate = base.breakdown.samples_per_second
        if instance is not None and rate:
            found[instance, base.target.nodes] = rate
    return found


# Ruled -----------------------------------------------------------------------------------------------------
# How people choose today, beside a plan: its own offers for the rules, and their picks weighed as it weighs its
# own.
#
# Knows what rules are given and what becomes of what they pick; how they choose is theirs.


def ruled(
    question: PlanProblem,
    field: CandidateSet,
    goal: Goal,
    catalog: Catalog,
    best: Choice | None,
    choice_of: Callable[[Evaluation], Choice],
) -> tuple[RuleChoice, ...]:
    """What each rule would have rented of what can be forecast, and its regret beside ``best``."""
    known = field.types().keys() - question.weighing.unknown.keys()
    rentables = [rentable for rentable in field.market.rentables if rentable.key in known]
    offers = [_offered(rentable, catalog) for rentable in rentables]
    priced = {id(offer): rentable for offer, rentable in zip(offers, rentables, strict=True)}

    def weigh(picked: Picked) -> Choice | str:
        found = _cheapest(question, field, priced[id(picked.offer)], picked.nodes)
        return choice_of(found) if isinstance(found, Evaluation) else found

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


def _cheapest(question: PlanProblem, field: CandidateSet, rentable: Rentable, nodes: int) -> Evaluation | str:
    """So many of it with the settings that cost least, as the plan would run it there; else why it is unknown."""
    found: list[Evaluation] = []
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


def _weighed(question: PlanProblem, chain: CandidateChain, number: int) -> Evaluation | None:
    """``None`` where weighing it shows that nobody can."""
    while chain.stage[number] < WHOLE:
        if not np.isfinite(chain.least.dollars[number]):
            return None
        question.weighing.advance(chain, number)
    return question.weighing.weighed(chain, number)
