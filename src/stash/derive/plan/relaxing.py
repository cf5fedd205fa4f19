"""Where nothing is feasible: the nearest deadline and budget that are, and each constraint that is in the way.

A deadline or budget is the least that something keeps with the confidence asked for. A constraint is in the way if
without it, and with all others, something is feasible. Knows no candidate by itself: it asks the same search again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stash.base.errors import UserError
from stash.base.plan import Constraints, Goal, Relaxation
from stash.derive.plan.question import Field, RentalQuestion
from stash.derive.plan.reasons import dollars, hours, name
from stash.derive.plan.search import GoalLimits, Measure, aim, least, limits_of
from stash.derive.plan.weighing import Weighed

MOST_NODES = 64
"""Nodes that are tried where fewer do not suffice."""


def relaxations(
    question: RentalQuestion, field: Field, goal: Goal, constraints: Constraints
) -> tuple[Relaxation, ...]:
    """What to loosen, each by itself, deadline and budget first."""
    of_goal = tuple(_of_goal(question, field, goal)) or tuple(_of_both(question, field, goal))
    return (*of_goal, *_of_constraints(question, goal, constraints))


def _of_goal(question: RentalQuestion, field: Field, goal: Goal) -> Iterator[Relaxation]:
    weighing, chains = question.weighing, field.chains
    if goal.deadline_seconds is not None:
        found = least(weighing, chains, "sure_seconds", GoalLimits(dollars=goal.budget_dollars))
        if found is not None:
            to = _hours_up(found.sure_seconds)
            within = "" if goal.budget_dollars is None else f" within {dollars(goal.budget_dollars)}"
            text = f"the nearest deadline that anything keeps{within} is {to}"
            yield Relaxation(option="deadline", to=to, text=f"{text}: {name(found)}, {hours(found.seconds)}")
    if goal.budget_dollars is not None:
        found = least(weighing, chains, "sure_dollars", GoalLimits(seconds=goal.deadline_seconds))
        if found is not None:
            to = f"{math.ceil(found.sure_dollars)}"
            within = "" if goal.deadline_seconds is None else f" in {hours(goal.deadline_seconds)}"
            text = f"the least budget that does it{within} is ${int(to):,}"
            yield Relaxation(option="budget", to=to, text=f"{text}: {name(found)}, {dollars(found.dollars)}")


def _of_both(question: RentalQuestion, field: Field, goal: Goal) -> Iterator[Relaxation]:
    """Where neither deadline nor budget helps by itself: both, of the cheapest and of the fastest there is."""
    if goal.deadline_seconds is None or goal.budget_dollars is None:
        return
    ends: tuple[tuple[Measure, str], ...] = (("sure_dollars", "cheapest"), ("sure_seconds", "fastest"))
    for measure, what in ends:
        found = least(question.weighing, field.chains, measure)
        if found is not None:
            budget = math.ceil(found.sure_dollars)
            to = f"--deadline {_hours_up(found.sure_seconds)} --budget {budget}"
            text = f"neither helps alone; {to} is kept by the {what}, {name(found)}"
            yield Relaxation(option="deadline and budget", to=to, text=text)


def _of_constraints(question: RentalQuestion, goal: Goal, constraints: Constraints) -> Iterator[Relaxation]:
    for option, update in _loosened(constraints):
        found = _feasible(question, goal, constraints.model_copy(update=update))
        if found is None:
            continue
        to, text = _loosened_to(option, found)
        yield Relaxation(
            option=option,
            to=to,
            text=f"{text} makes {name(found)} feasible: {hours(found.seconds)}, {dollars(found.dollars)}",
        )


def _loosened(constraints: Constraints) -> Iterator[tuple[str, dict[str, object]]]:
    """Each constraint that is in force, and the fields that lift it."""
    if constraints.most_nodes < MOST_NODES:
        yield "max-nodes", {"most_nodes": MOST_NODES}
    for option, field, nothing in (
        ("max-price", "most_dollars_per_hour", None),
        ("quota", "quotas", {}),
        ("min-memory", "least_gpu_memory_bytes", None),
        ("gpu", "gpus", ()),
        ("cloud", "clouds", ()),
        ("region", "regions", ()),
        ("exclude", "excluded", ()),
    ):
        if getattr(constraints, field):
            yield option, {field: nothing}
    if constraints.spot == "never":
        yield "spot", {"spot": "allow"}


def _feasible(question: RentalQuestion, goal: Goal, constraints: Constraints) -> Weighed | None:
    try:
        field = question.field(constraints)
    except UserError:
        return None
    return least(question.weighing, field.chains, aim(goal), limits_of(goal))


def _loosened_to(option: str, found: Weighed) -> tuple[str, str]:
    """What to type, and what that does."""
    if option == "max-nodes":
        return str(found.rental.nodes), f"--max-nodes {found.rental.nodes}"
    if option == "max-price":
        price = math.ceil(found.rental.dollars_per_hour * 100) / 100
        return f"{price:.2f}", f"--max-price {price:.2f}"
    if option == "quota":
        return (
            f"{found.rental.instance}={found.rental.nodes}",
            f"a quota of {found.rental.nodes} {found.rental.instance}",
        )
    if option == "spot":
        return "allow", "--spot allow"
    return "", f"leaving out --{option}"


def _hours_up(seconds: float) -> str:
    """As it is typed, rounded up to a tenth of an hour, or to a minute below one."""
    if seconds < 3600:
        return f"{math.ceil(seconds / 60)}m"
    return f"{math.ceil(seconds / 360) / 10:g}h"
