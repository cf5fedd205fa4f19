"""Every rule beside a plan: what it would have rented, what that does by the plan's own forecast, and its regret.

A rule chooses before anything is forecast for it; its pick is then weighed like any candidate. So regret is of the
choice alone, and as sure as the forecasts of both. Exhaustive search has no rule to choose by: it finds whatever is
best, and its regret is what measuring everything costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from stash.base.plan import Choice, Goal, RuleChoice
from stash.derive.plan.rules.linear import linear
from stash.derive.plan.rules.measuring import stash_table, trials, trials_dollars
from stash.derive.plan.rules.offered import Chooses, Offered, Picked, RuleFacts
from stash.derive.plan.rules.peaks import fastest_gpu, flops_per_dollar
from stash.derive.plan.rules.prices import cheapest_per_hour, skypilot


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
