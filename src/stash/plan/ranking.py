"""Who is chosen, who is tied, what is on the front, what lost, and one sentence why.

The front of all that keeps deadline and budget is exact, and so is the choice, which is one of its ends. Of every
other type its best is looked at, as it may be tied, and as people want to know why it lost. Two choices are tied if
the difference of what is to be least, in paired draws, has zero within its 95 % interval, and their means lie within
``NEAR``, or the other is the best of all in as many draws (decisions 16 and 28).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stash.core.formatting import format_chance, format_dollars, format_span
from stash.plan.bounds import Measure
from stash.plan.evaluation import CandidateChain, Evaluation
from stash.plan.hourly_prices import is_apart
from stash.plan.records import IN_BUDGET, IN_TIME, Goal
from stash.plan.regret import chances
from stash.plan.search import (
    CandidateSet,
    can_keep_limits,
    find_best,
    find_least,
    pareto_front,
)
from stash.predict.draws import Array

# Why each choice stands where it does


def explain_choice(goal: Goal, evaluation: Evaluation) -> str:
    """Why it is the one."""
    unless = ", unless it is interrupted" if evaluation.rental.price.paid_as == "spot" else ""
    sure = f"with {format_chance(goal.confidence or IN_BUDGET)} probability or more{unless}"
    if goal.aim == "seconds":
        return f"the fastest that stays within {format_dollars(goal.budget_dollars or 0.0)} {sure}"
    kept = [format_span(goal.deadline_seconds)] if goal.deadline_seconds is not None else []
    kept += [format_dollars(goal.budget_dollars)] if goal.budget_dollars is not None else []
    if goal.weighs_lateness:
        return (
            f"the least expected cost for {' and '.join(kept)}, with what being late costs{unless}"
        )
    return (
        f"the cheapest that keeps {' and '.join(kept)} {sure}"
        if kept
        else "the cheapest in the mean"
    )


def explain_tie(goal: Goal, chosen: Evaluation, better: float) -> str:
    what = "sooner" if goal.aim == "seconds" else "cheaper"
    return f"as good as {chosen.rental.name} within what is known: {what} than it in {format_chance(better)} of cases"


def explain_front(evaluation: Evaluation, chosen: Evaluation) -> str:
    more, less = evaluation.dollars - chosen.dollars, evaluation.seconds - chosen.seconds
    money = f"{format_dollars(abs(more))} {'dearer' if more > 0 else 'cheaper'}"
    time = f"{format_span(abs(less))} {'later' if less > 0 else 'sooner'}"
    return f"{money} and {time} than {chosen.rental.name}"


def explain_loss(goal: Goal, evaluation: Evaluation, chosen: Evaluation) -> str:
    """The stall or item that makes most of the difference to the chosen one, in dollars or in seconds."""
    mine, other = _parts(goal, evaluation), _parts(goal, chosen)
    worst = max(mine, key=lambda each: mine[each] - other.get(each, 0.0))
    total, less = (float(getattr(each, goal.aim)) for each in (evaluation, chosen))
    text, than, does, whole = (
        (format_span, "later", "takes", "time")
        if goal.aim == "seconds"
        else (format_dollars, "dearer", "costs", "bill")
    )
    more = f"{text(total - less)} {than} than {chosen.rental.name}"
    if worst == "compute":
        return f"{more}: compute alone {does} {text(mine[worst])} there, {text(other[worst])} on the other"
    what = f"{worst} stall" if any(part.name == worst for part in evaluation.drawn.parts) else worst
    return f"{more}: {format_chance(mine[worst] / total)} of its {whole} is {what}"


def explain_failure(goal: Goal, evaluation: Evaluation) -> str:
    """Which limit it misses, and by how much."""
    reasons = []
    on_time, within = evaluation.chance_in_time(goal), evaluation.chance_in_budget(goal)
    if on_time is not None and on_time < goal.surely_in_time and goal.deadline_seconds is not None:
        limit = format_span(goal.deadline_seconds)
        reasons.append(
            f"takes {format_span(evaluation.seconds)}, done in {limit} with {format_chance(on_time)} probability"
        )
    if within is not None and within < goal.surely_in_budget and goal.budget_dollars is not None:
        limit = format_dollars(goal.budget_dollars)
        reasons.append(
            f"costs {format_dollars(evaluation.dollars)}, within {limit} with {format_chance(within)} probability"
        )
    step = float(evaluation.drawn.step.mean())
    stalls = {
        part.name: float(part.seconds.mean())
        for part in evaluation.drawn.parts
        if part.name != "compute"
    }
    worst = max(stalls, key=lambda each: stalls[each], default=None)
    if worst is not None and stalls[worst] >= 0.2 * step:  # that is what keeps it from being faster
        return f"{' and '.join(reasons)}; {format_chance(stalls[worst] / step)} of its step is {worst} stall"
    return " and ".join(reasons)


def _parts(goal: Goal, evaluation: Evaluation) -> dict[str, float]:
    """Seconds of every stall, or dollars of those and of every other item."""
    if goal.aim == "seconds":
        return {
            part.name: float(part.seconds.mean()) * evaluation.steps
            for part in evaluation.drawn.parts
        }
    billed = evaluation.billed
    spent = zip(billed.predicted, billed.stall_dollars, strict=True)
    items = {
        part.name: float(part.dollars.mean()) for part in billed.parts if part.name != "training"
    }
    return {part.name: float(of.mean()) for part, of in spent} | items


# What certainty costs

_LESS_SURE = 0.05
"""That an exchange gives up of the probability to keep the limits."""
_WORTHWHILE = 0.05
"""Of what is to be least: an exchange that brings less is not one."""


def certainty_prices(
    candidates: CandidateSet, goal: Goal, chosen: Evaluation, others: Sequence[Evaluation]
) -> tuple[str, ...]:
    """What a little less certainty would buy, and where lateness is weighed, what more of it costs: sentences."""
    if goal.deadline_seconds is None and goal.budget_dollars is None:
        return ()
    if not goal.weighs_lateness:
        sure = goal.confidence or IN_BUDGET
        less = sure - _LESS_SURE
        looser = goal.model_copy(update={"confidence": less})
        found = candidates.change_goal(looser).least(goal.aim, looser)
        return () if found is None else _certainty_price(goal, chosen, found, less, sure)
    sure = chosen.chance_in_time(goal) or 0.0
    surer = [each for each in others if (each.chance_in_time(goal) or 0.0) >= sure + _LESS_SURE]
    cheaper = [each for each in others if each.dollars < chosen.dollars]
    less_sure = [
        each
        for each in cheaper
        if IN_TIME <= (each.chance_in_time(goal) or 0.0) <= sure - _LESS_SURE
    ]
    best = [min(each, key=lambda one: one.dollars) for each in (less_sure, surer) if each]
    texts = (
        _certainty_price(goal, chosen, each, each.chance_in_time(goal) or 0.0, sure)
        for each in best
    )
    return tuple(text for one in texts for text in one)


def _certainty_price(
    goal: Goal, chosen: Evaluation, other: Evaluation, its: float, sure: float
) -> tuple[str, ...]:
    mine, theirs = (getattr(each, goal.aim) for each in (chosen, other))
    if abs(theirs - mine) < _WORTHWHILE * mine:
        return ()
    if goal.aim == "dollars":
        what = f"{format_dollars(abs(theirs - mine))} {'more' if theirs > mine else 'less'}"
    else:
        what = (
            f"{mine / theirs:.2g} times sooner"
            if mine >= 2 * theirs
            else f"{format_span(mine - theirs)} sooner"
        )
    return (
        f"{format_chance(its)} instead of {format_chance(sure)}: {what}, with {other.rental.name}",
    )


# Beyond what was profiled

_FAR = 16
"""Times the devices that were profiled."""


def extrapolation_doubt(evaluation: Evaluation) -> str | None:
    """A doubt about many more devices than were profiled; ``None`` where they are not so many."""
    ranks, before = (
        int(evaluation.shape.ranks[evaluation.number]),
        evaluation.shape.base.target.ranks,
    )
    if ranks <= _FAR * before:
        return None
    return (
        f"{ranks:,} devices are {ranks / before:,.0f} times the {before:,} that were profiled, far beyond what "
        "forecasts were checked on: profile on two such machines first"
    )


# Ties

NEAR = 0.10
"""Of the chosen one's mean: what is farther is no tie, however uncertain."""


def difference(evaluation: Evaluation, chosen: Evaluation) -> Array:
    """How much worse than the chosen one, ``[draws]``."""
    return evaluation.objective - chosen.objective


def is_tied(evaluation: Evaluation, chosen: Evaluation) -> bool:
    less = difference(evaluation, chosen)
    return float(less.mean()) <= NEAR * chosen.expected_objective and not is_apart(less)


# Standings

LISTED = 60
"""Types that lost of which the best is forecast and shown, those with the least bound first."""


@dataclass(frozen=True, eq=False)
class Standings:
    """Every candidate that is shown."""

    chosen: Evaluation | None
    ties: tuple[Evaluation, ...]
    """One a type, and none of the chosen one's."""
    front: tuple[Evaluation, ...]
    """Without the chosen one and its ties; the cheapest first."""
    lost: tuple[Evaluation, ...]
    infeasible: tuple[Evaluation, ...]
    unlisted: int
    """Types that are proven worse and not shown."""

    @property
    def feasible(self) -> tuple[Evaluation, ...]:
        """Every one that keeps the limits, the chosen one first."""
        return () if self.chosen is None else (self.chosen, *self.ties, *self.front, *self.lost)


def rank_candidates(candidates: CandidateSet, goal: Goal, listed: Sequence[str]) -> Standings:
    """Rank every candidate; types in ``listed`` are shown whatever their rank."""
    evaluator = candidates.evaluator
    missed: Measure = "sure_dollars" if goal.aim == "seconds" else "sure_seconds"
    best = pareto_front(evaluator, candidates.chains, goal)
    chosen = find_best(evaluator, candidates.chains, goal)
    near = np.inf if chosen is None else (1 + NEAR) * chosen.expected_objective
    on_front = {each.rentable.key for each in best}
    ties: list[Evaluation] = []
    lost: list[Evaluation] = []
    infeasible: list[Evaluation] = []
    unlisted = 0
    by_bound = sorted(candidates.types().items(), key=lambda item: _least_bound(item[1], goal))
    asked_for = {each.lower() for each in listed}
    for key, chains in by_bound:
        if chosen is not None and key == chosen.rentable.key:
            continue
        named = not asked_for.isdisjoint((key.lower(), key.partition("/")[2].lower()))
        shown = key not in on_front and (len(lost) + len(infeasible) < LISTED or named)
        may_tie = chosen is not None and _least_bound(chains, goal) <= near
        if not shown and not may_tie:
            unlisted += key not in on_front
            continue
        evaluation = None if chosen is None else find_best(evaluator, chains, goal)
        if evaluation is not None and chosen is not None and is_tied(evaluation, chosen):
            ties.append(evaluation)
        elif not shown:
            unlisted += key not in on_front
        elif evaluation is not None:
            lost.append(evaluation)
        elif (nearest := find_least(evaluator, chains, missed)) is not None:
            infeasible.append(nearest)
    lost.sort(key=lambda each: each.expected_objective)
    rest = [each for each in best if each is not chosen and each not in ties]
    if chosen is not None:
        # Where a tail is heavy the mean hides it: what is best as often as the chosen one is no loser.
        found = (chosen, *ties, *rest, *lost)
        shares = dict(zip(found, chances(found).tolist(), strict=True))
        alike = [
            each
            for each in lost
            if shares[each] >= shares[chosen] and not is_apart(difference(each, chosen))
        ]
        ties += alike
        lost = [each for each in lost if each not in alike]
    return Standings(chosen, tuple(ties), tuple(rest), tuple(lost), tuple(infeasible), unlisted)


def _least_bound(chains: Sequence[CandidateChain], goal: Goal) -> float:
    """The least that any candidate of a type can be; infinite if none keeps the limits."""
    rows = (chain.least[goal.aim][can_keep_limits(goal, chain.least)] for chain in chains)
    return min(float(row.min(initial=np.inf)) for row in rows)
