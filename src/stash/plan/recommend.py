"""The way in: profiles, a goal and offers in, a plan out; or what would be feasible where nothing is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.formatting import format_dollars, format_span
from stash.core.garbage import no_garbage
from stash.core.intervals import Interval
from stash.core.version import __version__
from stash.plan import ranking, regret
from stash.plan.bill import BillFacts, not_counted
from stash.plan.bounds import Measure
from stash.plan.candidates import resolve_names
from stash.plan.evaluation import Evaluation
from stash.plan.ranking import Standings, difference
from stash.plan.records import (
    CALLED,
    IN_BUDGET,
    LIMITED,
    Choice,
    ChoiceStanding,
    Constraints,
    Goal,
    Relaxation,
    RentalPlan,
)
from stash.plan.search import CandidateSet, PlanProblem
from stash.plan.settings import policy_notes, step_plan
from stash.predict.cluster import Target
from stash.predict.draws import intervals, least_certain
from stash.predict.passes import Base

# Where nothing is feasible

MAX_NODES = 64
"""Nodes that are tried where fewer do not suffice."""


def find_relaxations(
    problem: PlanProblem, candidates: CandidateSet, goal: Goal, constraints: Constraints
) -> tuple[Relaxation, ...]:
    """What to loosen, each by itself, deadline and budget first.

    A deadline or budget is the least that something keeps with the confidence asked for, 90 % where none was: what is
    suggested is no gamble. A constraint is in the way
    if without it, and with all others, something is feasible.
    """
    surely = goal.model_copy(update={"confidence": goal.confidence or IN_BUDGET})
    asked = candidates.change_goal(surely)
    of_goal = tuple(_relax_goal(asked, surely)) or tuple(_relax_both_limits(asked, surely))
    return (*of_goal, *_relax_constraints(problem, surely, constraints))


def _relax_goal(candidates: CandidateSet, goal: Goal) -> Iterator[Relaxation]:
    """The deadline, and the budget, that something keeps while the other one stays."""
    deadline, budget = goal.deadline_seconds, goal.budget_dollars
    if deadline is not None:
        nearest = candidates.least(
            "sure_seconds", goal.model_copy(update={"deadline_seconds": None})
        )
        if nearest is not None:
            to = _round_hours_up(nearest.sure_seconds)
            within = "" if budget is None else f" within {format_dollars(budget)}"
            needed = _needed_speedup(
                nearest, nearest.sure_seconds / deadline, format_span(deadline)
            )
            text = (
                f"the nearest deadline that anything keeps{within} is {to}: {nearest.rental.name}"
            )
            text = f"{text}, {format_span(nearest.seconds)}; {needed}"
            yield Relaxation(option="deadline", to=to, text=text)
    if budget is not None:
        nearest = candidates.least("sure_dollars", goal.model_copy(update={"budget_dollars": None}))
        if nearest is not None:
            least = math.ceil(nearest.sure_dollars)
            within = "" if deadline is None else f" in {format_span(deadline)}"
            limit = f"{format_dollars(budget)} at this price"
            needed = _needed_speedup(nearest, nearest.sure_dollars / budget, limit)
            text = f"the least budget that does it{within} is ${least:,}: {nearest.rental.name}"
            text = f"{text}, {format_dollars(nearest.dollars)}; {needed}"
            yield Relaxation(option="budget", to=f"{least}", text=text)


def _needed_speedup(nearest: Evaluation, times: float, limit: str) -> str:
    """What would have to change for the nearest to keep ``limit``, and whether its stalls could give it."""
    means = {part.name: float(part.seconds.mean()) for part in nearest.drawn.parts}
    compute = means.get("compute", 0.0)
    without = float(nearest.drawn.step.mean()) / compute if compute > 0 else math.inf
    can = "which its stalls could give"
    if times > without:
        can = f"and without any stall it is {without:.2g} times"
    return f"for {limit} it would have to be {times:.2g} times as fast, {can}"


def _relax_both_limits(candidates: CandidateSet, goal: Goal) -> Iterator[Relaxation]:
    """Where neither deadline nor budget helps by itself: both, of the cheapest and of the fastest there is."""
    if goal.deadline_seconds is None or goal.budget_dollars is None:
        return
    ends: dict[Measure, str] = {"sure_dollars": "cheapest", "sure_seconds": "fastest"}
    for measure, what in ends.items():
        nearest = candidates.least(measure)
        if nearest is not None:
            budget = math.ceil(nearest.sure_dollars)
            to = f"--deadline {_round_hours_up(nearest.sure_seconds)} --max-dollars {budget}"
            text = f"neither helps alone; {to} is kept by the {what}, {nearest.rental.name}"
            yield Relaxation(option="deadline and budget", to=to, text=text)


def _relax_constraints(
    problem: PlanProblem, goal: Goal, constraints: Constraints
) -> Iterator[Relaxation]:
    usual = Constraints()
    lifted: dict[str, dict[str, object]] = {"max-nodes": {"most_nodes": MAX_NODES}}
    lifted |= {option: {field: getattr(usual, field)} for option, field in LIMITED.items()}
    lifted["spot"] = {"spot": "allow"}
    for option, update in lifted.items():
        looser = constraints.model_copy(update=update)
        if looser == constraints or looser.most_nodes < constraints.most_nodes:
            continue
        try:
            left = problem.candidates(looser)
        except UserError:
            continue
        nearest = left.change_goal(goal).least(goal.aim, goal)
        if nearest is None:
            continue
        to, text = _describe_lift(option, nearest)
        text = (
            f"{text} makes {nearest.rental.name} feasible: {format_span(nearest.seconds)}, "
            f"{format_dollars(nearest.dollars)}"
        )
        doubt = ranking.extrapolation_doubt(nearest)
        yield Relaxation(option=option, to=to, text="; ".join(filter(None, (text, doubt))))


def _describe_lift(option: str, nearest: Evaluation) -> tuple[str, str]:
    """What to type, and what that does."""
    rental = nearest.rental
    if option == "max-nodes":
        return str(rental.nodes), f"--max-nodes {rental.nodes}"
    if option == "max-price":
        price = f"{math.ceil(rental.dollars_per_hour * 100) / 100:.2f}"
        return price, f"--max-price {price}"
    if option == "quota":
        return f"{rental.instance}={rental.nodes}", f"a quota of {rental.nodes} {rental.instance}"
    if option == "spot":
        return "allow", "--allow-spot"
    return "", f"leaving out --{CALLED.get(option, option)}"


def _round_hours_up(seconds: float) -> str:
    """As it is typed, rounded up to a tenth of an hour, or to a minute below one."""
    if seconds < 3600:
        return f"{math.ceil(seconds / 60)}m"
    return f"{math.ceil(seconds / 360) / 10:g}h"


# The plan


@no_garbage()
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
) -> RentalPlan:
    """What to rent for ``goal``: chosen, tied, the front, and what lost, each with its reason.

    ``files`` name the profiles of ``bases``, and ``now`` is the day that prices' ages are counted to. ``machines``
    are one node each of instance types that were measured or described, by name: their facts replace those of the
    catalog. Types in ``listed`` are among the choices however bad they are. Raises UserError.
    """
    constraints = resolve_names(constraints, catalog)
    plan = step_plan(bases, goal, files)
    problem = PlanProblem(bases, plan, catalog, bill, machines or {}, now, constraints.transport)
    candidates = problem.candidates(constraints).with_lateness_priced()
    standings = ranking.rank_candidates(candidates, candidates.evaluator.goal, listed)
    taken, warned = policy_notes(plan)
    draws = problem.bases[0].draws
    return RentalPlan(
        stash_version=__version__,
        created=now.isoformat(),
        workload=bases[0].profile.workload.name,
        profiles=tuple(files),
        goal=goal,
        constraints=constraints,
        choices=tuple(_make_choices(goal, standings)),
        unranked=(*candidates.unranked, *candidates.evaluator.unknown.values()),
        **_advise(problem, candidates, goal, constraints, standings),
        assumptions=(*taken, *_assumptions(problem, candidates, bill, files, standings.unlisted)),
        warnings=warned,
        weighed=candidates.combinations,
        pruned=candidates.pruned_count,
        seed=draws.seed,
        draws=draws.count,
    )


def _advise(
    problem: PlanProblem,
    candidates: CandidateSet,
    goal: Goal,
    constraints: Constraints,
    standings: Standings,
) -> dict[str, Any]:
    """Fields of a plan: what the choice risks and what would make it surer, or what to loosen where there is none."""
    chosen, feasible = standings.chosen, standings.feasible
    if chosen is None:
        return {"relaxations": find_relaxations(problem, candidates, goal, constraints)}
    unsure = standings.infeasible
    return {
        "risk": regret.measure_risk(goal, chosen, feasible),
        "experiment": regret.find_experiment(goal, chosen, feasible, unsure),
        "exchanges": ranking.certainty_prices(candidates, goal, chosen, feasible[1:]),
    }


def _make_choices(goal: Goal, standings: Standings) -> Iterator[Choice]:
    """In the order of a plan."""
    chosen = standings.chosen
    if chosen is not None:
        shares = regret.chances(standings.feasible).tolist()
        best = dict(zip(standings.feasible, shares, strict=True))
        why = ranking.explain_choice(goal, chosen)
        yield _make_choice(goal, chosen, "chosen", why, best[chosen])
        for each in standings.ties:
            better = float(np.mean(difference(each, chosen) < 0))
            why = ranking.explain_tie(goal, chosen, better)
            yield _make_choice(goal, each, "tied", why, best[each])
        for each in standings.front:
            why = ranking.explain_front(each, chosen)
            yield _make_choice(goal, each, "front", why, best[each])
        for each in standings.lost:
            why = ranking.explain_loss(goal, each, chosen)
            yield _make_choice(goal, each, "lost", why, best[each])
    for each in standings.infeasible:
        yield _make_choice(goal, each, "infeasible", ranking.explain_failure(goal, each))


def _make_choice(
    goal: Goal,
    evaluation: Evaluation,
    standing: ChoiceStanding,
    why: str,
    best: float | None = None,
) -> Choice:
    parts, billed = evaluation.drawn.parts, evaluation.billed
    doubts = filter(None, (ranking.extrapolation_doubt(evaluation),))
    median_seconds, median_dollars = np.median([billed.seconds, billed.dollars], axis=1).tolist()
    (step,) = intervals(evaluation.drawn.step[np.newaxis])
    # how often it is interrupted, no source of a plan says
    revocable = evaluation.rental.price.paid_as == "spot"
    return Choice(
        rented=evaluation.rental,
        setting=evaluation.setting,
        standing=standing,
        why=why,
        samples_per_step=evaluation.samples,
        steps=evaluation.steps,
        step=step if all(part.spread_known for part in parts) else Interval(value=step.value),
        stalls=billed.stalls,
        items=billed.items,
        seconds=billed.seconds_interval,
        dollars=billed.dollars_interval,
        on_time=None if revocable else evaluation.chance_in_time(goal),
        within_budget=None if revocable else evaluation.chance_in_budget(goal),
        best=best,
        median_seconds=median_seconds,
        median_dollars=median_dollars,
        transport=evaluation.drawn.target.transport_name,
        origin=least_certain(part.origin for part in parts),
        beyond=tuple(
            dict.fromkeys((*doubts, *(sentence for part in parts for sentence in part.beyond)))
        ),
    )


def _assumptions(
    problem: PlanProblem,
    candidates: CandidateSet,
    bill: BillFacts,
    files: Sequence[str],
    unlisted: int,
) -> Iterator[str]:
    """What was taken for granted, besides the policy of scaling."""
    late = candidates.evaluator.goal.late_dollars
    if late is not None:
        default = ", the bill of what is surely in time (--late-costs 500 says what it does)"
        yield f"being late costs {format_dollars(late)}{default if problem.evaluator.goal.late_dollars is None else ''}"
    yield "steps are those of the profile's rung cold in the first epoch, and then as memory caches the data"
    alike = {
        (each.instance.cloud, each.price.paid_as): each for each in candidates.market.rentables
    }
    yield from not_counted(bill, [each.rental(1) for each in alike.values()], first_epoch=True)
    if any(chain.shape.nodes[-1] > 1 for chain in candidates.chains):
        yield problem.transport_note
    if len(problem.bases) > 1:
        used = {chain.rentable.key: chain.shape.base for chain in candidates.chains}
        for base, file in zip(problem.bases, files, strict=True):
            count = sum(each is base for each in used.values())
            yield f"{count} of {len(used)} types are forecast from {file}, the profile nearest to them"
    if unlisted:
        yield f"{unlisted} more types are proven worse and not listed (--explain-type names one)"
