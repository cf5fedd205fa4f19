"""The way in: profiles, a goal and offers in, a plan out; or what would be feasible where nothing is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import numpy as np

from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.intervals import Interval
from stash.core.version import __version__
from stash.plan import ranking
from stash.plan.bill import BillFacts, not_counted
from stash.plan.candidates import old_prices
from stash.plan.evaluation import Calibration, Evaluation
from stash.plan.ranking import Standings, difference, dollars, experiment, hours, name, standings
from stash.plan.records import CALLED, Choice, ChoiceStanding, Constraints, Goal, Relaxation, RentalPlan, RuleChoice
from stash.plan.rules import ruled
from stash.plan.search import CandidateSet, GoalLimits, Measure, PlanProblem, aim, least, limits_of
from stash.plan.settings import policy_notes, step_plan
from stash.predict.cluster import Target
from stash.predict.draws import intervals, worst
from stash.predict.passes import Base

# Relaxing --------------------------------------------------------------------------------------------------
# Where nothing is feasible: the nearest deadline and budget that are, and each constraint that is in the way.
#
# A deadline or budget is the least that something keeps with the confidence asked for. A constraint is in the way
# if without it, and with all others, something is feasible. Knows no candidate by itself: it asks the same search
# again.

MAX_NODES = 64
"""Nodes that are tried where fewer do not suffice."""


def relaxations(
    question: PlanProblem, field: CandidateSet, goal: Goal, constraints: Constraints
) -> tuple[Relaxation, ...]:
    """What to loosen, each by itself, deadline and budget first."""
    of_goal = tuple(_of_goal(question, field, goal)) or tuple(_of_both(question, field, goal))
    return (*of_goal, *_of_constraints(question, goal, constraints))


def _of_goal(question: PlanProblem, field: CandidateSet, goal: Goal) -> Iterator[Relaxation]:
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


def _of_both(question: PlanProblem, field: CandidateSet, goal: Goal) -> Iterator[Relaxation]:
    """Where neither deadline nor budget helps by itself: both, of the cheapest and of the fastest there is."""
    if goal.deadline_seconds is None or goal.budget_dollars is None:
        return
    ends: tuple[tuple[Measure, str], ...] = (("sure_dollars", "cheapest"), ("sure_seconds", "fastest"))
    for measure, what in ends:
        found = least(question.weighing, field.chains, measure)
        if found is not None:
            budget = math.ceil(found.sure_dollars)
            to = f"--deadline {_hours_up(found.sure_seconds)} --max-cost {budget}"
            text = f"neither helps alone; {to} is kept by the {what}, {name(found)}"
            yield Relaxation(option="deadline and budget", to=to, text=text)


def _of_constraints(question: PlanProblem, goal: Goal, constraints: Constraints) -> Iterator[Relaxation]:
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
    if constraints.most_nodes < MAX_NODES:
        yield "max-nodes", {"most_nodes": MAX_NODES}
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


def _feasible(question: PlanProblem, goal: Goal, constraints: Constraints) -> Evaluation | None:
    try:
        field = question.field(constraints)
    except UserError:
        return None
    return least(question.weighing, field.chains, aim(goal), limits_of(goal))


def _loosened_to(option: str, found: Evaluation) -> tuple[str, str]:
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
        return "allow", "--allow-spot"
    return "", f"leaving out --{CALLED.get(option, option)}"


def _hours_up(seconds: float) -> str:
    """As it is typed, rounded up to a tenth of an hour, or to a minute below one."""
    if seconds < 3600:
        return f"{math.ceil(seconds / 60)}m"
    return f"{math.ceil(seconds / 360) / 10:g}h"


# Recommend -------------------------------------------------------------------------------------------------
# The way in: profiles, a goal and what may be rented in, a plan out.
#
# Asks the question, has every candidate's standing found, and makes the record of it: each choice with its reason,
# and what was taken for granted. Decides nothing itself; nothing is read or written here.

LISTED = 60
"""Types that lost of which the best is forecast and shown, those with the least bound first."""

SLACK = 0.05
"""Of the best of another type than the chosen one's: that which is shown is proven to be this near to it."""


def recommend(
    bases: Sequence[Base],
    goal: Goal,
    constraints: Constraints,
    catalog: Catalog,
    bill: BillFacts,
    files: Sequence[str],
    now: date,
    *,
    machines: Mapping[str, Target] | None = None,
    listed: Sequence[str] = (),
    calibrate: Calibration | None = None,
    rules: bool = False,
) -> RentalPlan:
    """What to rent for ``goal``: chosen, tied, the front, and what lost, each with its reason.

    ``files`` name the profiles of ``bases``, and ``now`` is the day that prices' ages are counted to. ``machines``
    are one node each of instance types that were measured or described, by name: their facts replace those of the
    catalog. Types in ``listed`` are among the choices however bad they are. ``calibrate`` changes each forecast
    before it is used, as earlier plans' residuals do; then no bound of the model's is used. With ``rules``, what
    other ways to choose would have rented stands beside it. Raises UserError.
    """
    plan = step_plan(bases, goal)
    question = PlanProblem(bases, plan, catalog, bill, machines or {}, now, calibrate)
    field = question.field(constraints)
    found = standings(question, field, goal, listed)
    taken, warned = policy_notes(plan)
    old = old_prices(field.market.rentables, constraints, now)
    draws = question.bases[0].draws
    return RentalPlan(
        stash_version=__version__,
        created=now.isoformat(),
        workload=bases[0].profile.workload.name,
        profiles=tuple(files),
        goal=goal,
        constraints=constraints,
        choices=tuple(_choices(goal, found)),
        unranked=(*field.unranked, *question.weighing.unknown.values()),
        experiment=None if found.chosen is None else experiment(goal, found.chosen, found.ties),
        relaxations=() if found.chosen else relaxations(question, field, goal, constraints),
        assumptions=(*taken, *_assumed(question, field, bill, files, found.unlisted)),
        warnings=(*warned, *(() if old is None else (old,))),
        weighed=field.weighed,
        pruned=field.pruned,
        seed=draws.seed,
        draws=draws.count,
        rules=_ruled(question, field, goal, catalog, found) if rules else (),
    )


# Records -----------------------------------------------------------------------------------------------------------


def _choices(goal: Goal, found: Standings) -> Iterator[Choice]:
    """In the order of a plan."""
    chosen = found.chosen
    if chosen is not None:
        yield _choice(goal, chosen, "chosen", ranking.of_chosen(goal, chosen))
        for each in found.ties:
            better = float(np.mean(difference(goal, each, chosen) < 0))
            yield _choice(goal, each, "tied", ranking.of_tied(goal, chosen, better))
        for each in found.front:
            yield _choice(goal, each, "front", ranking.of_front(each, chosen))
        for each in found.lost:
            yield _choice(goal, each, "lost", ranking.of_loser(goal, each, chosen))
    for each in found.infeasible:
        yield _choice(goal, each, "infeasible", ranking.of_infeasible(goal, each))


def _ruled(
    question: PlanProblem, field: CandidateSet, goal: Goal, catalog: Catalog, found: Standings
) -> tuple[RuleChoice, ...]:
    """What other ways to choose would have rented, beside what this one did."""
    best = None if found.chosen is None else _choice(goal, found.chosen, "chosen", "")
    return ruled(question, field, goal, catalog, best, lambda each: _choice(goal, each, "lost", "a rule's choice"))


def _choice(goal: Goal, found: Evaluation, standing: ChoiceStanding, why: str) -> Choice:
    parts = found.drawn.parts
    revocable = found.rental.price.paid_as == "spot"  # how often it is interrupted, no source of a plan says
    return Choice(
        rented=found.rental,
        setting=found.setting,
        standing=standing,
        why=why,
        samples_per_step=found.samples,
        steps=found.steps,
        step=_step(found),
        stalls=found.billed.stalls,
        items=found.billed.items,
        seconds=found.billed.seconds_interval,
        dollars=found.billed.dollars_interval,
        on_time=None if revocable else found.on_time(goal),
        within_budget=None if revocable else found.within_budget(goal),
        origin=worst(part.origin for part in parts),
        beyond=tuple(dict.fromkeys(sentence for part in parts for sentence in part.beyond)),
    )


def _step(found: Evaluation) -> Interval:
    (step,) = intervals(found.drawn.step[np.newaxis])
    known = all(part.spread_known for part in found.drawn.parts)
    return step if known else Interval(value=step.value)


def _assumed(
    question: PlanProblem, field: CandidateSet, bill: BillFacts, files: Sequence[str], unlisted: int
) -> Iterator[str]:
    """What was taken for granted, beside the policy of scaling."""
    yield "steps are those of the profile's rung cold in the first epoch, and then as memory caches the data"
    rentals = [rentable.rental(1) for rentable in field.market.rentables]
    yield from not_counted(bill, rentals, first_epoch=True)
    if len(question.bases) > 1:
        used = {chain.rentable.key: chain.shape.key.base for chain in field.chains}
        for number, file in enumerate(files):
            count = sum(1 for each in used.values() if each == number)
            yield f"{count} of {len(used)} types are forecast from {file}, the profile nearest to them"
    if unlisted:
        yield f"{unlisted} more types are proven worse and not listed (--explain names one)"
