"""Who is chosen, who is tied, what is on the front, what lost, and one sentence why.

The front of all that keeps deadline and budget is exact, and so is the choice, which is one of its ends. Of every
other type its best is looked at, as it may be tied, and as people want to know why it lost. Two choices are tied if
the difference of what is to be least, in paired draws, has zero within its 95 % interval, and their means lie within
``NEAR``: as uncertain as a forecast may be, one that is much worse on average is no equal (decision 16).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stash.core.ladder import EXCHANGE_STALLS
from stash.core.units import format_seconds
from stash.plan.evaluation import FLOOR, CandidateChain, Evaluation, Evaluator
from stash.plan.hourly_prices import apart
from stash.plan.records import Experiment, Goal
from stash.plan.search import CandidateSet, GoalLimits, Measure, PlanProblem, aim, front, least, limits_of
from stash.predict.draws import Array
from stash.predict.passes import command

# Why each choice stands where it does


def dollars(value: float) -> str:
    """As people write sums: cents below $100, whole dollars from there."""
    return f"${value:,.2f}" if abs(value) < 100 else f"${value:,.0f}"


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else format_seconds(seconds)


def percent(probability: float) -> str:
    """Never rounded to a certainty that draws do not show."""
    if 0 < probability < 0.01 or 0.99 < probability < 1:
        return "less than 1 %" if probability < 0.5 else "more than 99 %"
    return f"{probability * 100:.0f} %"


def of_chosen(goal: Goal, evaluation: Evaluation) -> str:
    """Why it is the one."""
    sure = f"with {percent(goal.confidence)} probability or more"
    if evaluation.rental.price.paid_as == "spot":
        sure = f"{sure}, unless it is interrupted"
    if aim(goal) == "seconds":
        return f"the fastest that stays within {dollars(goal.budget_dollars or 0.0)} {sure}"
    kept = [hours(goal.deadline_seconds)] if goal.deadline_seconds is not None else []
    kept += [dollars(goal.budget_dollars)] if goal.budget_dollars is not None else []
    return f"the cheapest that keeps {' and '.join(kept)} {sure}" if kept else "the cheapest of all"


def of_tied(goal: Goal, chosen: Evaluation, better: float) -> str:
    what = "sooner" if aim(goal) == "seconds" else "cheaper"
    return f"as good as {name(chosen)} within what is known: {what} than it in {percent(better)} of cases"


def of_front(evaluation: Evaluation, chosen: Evaluation) -> str:
    more, less = evaluation.dollars - chosen.dollars, evaluation.seconds - chosen.seconds
    money = f"{dollars(abs(more))} {'dearer' if more > 0 else 'cheaper'}"
    time = f"{hours(abs(less))} {'later' if less > 0 else 'sooner'}"
    return f"{money} and {time} than {name(chosen)}"


def of_loser(goal: Goal, evaluation: Evaluation, chosen: Evaluation) -> str:
    """The stall or item that makes most of the difference to the chosen one, in dollars or in seconds."""
    stalls = {part.name: float(part.seconds.mean()) * evaluation.steps for part in evaluation.drawn.parts}
    if aim(goal) == "seconds":
        others = {part.name: float(part.seconds.mean()) * chosen.steps for part in chosen.drawn.parts}
        worst = max(stalls, key=lambda each: stalls[each] - others.get(each, 0.0))
        later = f"{hours(evaluation.seconds - chosen.seconds)} later than {name(chosen)}"
        if worst == "compute":
            both = f"{hours(stalls[worst])} there, {hours(others['compute'])} on the other"
            return f"{later}: compute alone takes {both}"
        return f"{later}: {percent(stalls[worst] / evaluation.seconds)} of its time is {worst} stall"
    mine, other = _dollar_parts(evaluation), _dollar_parts(chosen)
    worst = max(mine, key=lambda each: mine[each] - other.get(each, 0.0))
    more = f"{dollars(evaluation.dollars - chosen.dollars)} dearer than {name(chosen)}"
    share = mine[worst] / evaluation.dollars
    if worst == "compute":
        return f"{more}: compute alone costs {dollars(mine[worst])} there, {dollars(other['compute'])} on the other"
    what = f"{worst} stall" if worst in stalls else worst
    return f"{more}: {percent(share)} of its bill is {what}"


def of_infeasible(goal: Goal, evaluation: Evaluation) -> str:
    """Which limit it misses, and by how much."""
    reasons = []
    on_time, within = evaluation.on_time(goal), evaluation.within_budget(goal)
    if on_time is not None and on_time < goal.confidence and goal.deadline_seconds is not None:
        limit = hours(goal.deadline_seconds)
        reasons.append(f"takes {hours(evaluation.seconds)}, done in {limit} with {percent(on_time)} probability")
    if within is not None and within < goal.confidence and goal.budget_dollars is not None:
        limit = dollars(goal.budget_dollars)
        reasons.append(f"costs {dollars(evaluation.dollars)}, within {limit} with {percent(within)} probability")
    step = float(evaluation.drawn.step.mean())
    stalls = {part.name: float(part.seconds.mean()) for part in evaluation.drawn.parts if part.name != "compute"}
    worst = max(stalls, key=lambda each: stalls[each], default=None)
    if worst is not None and stalls[worst] >= 0.2 * step:  # that is what keeps it from being faster
        return f"{' and '.join(reasons)}; {percent(stalls[worst] / step)} of its step is {worst} stall"
    return " and ".join(reasons)


def name(evaluation: Evaluation) -> str:
    """``"2 × p3.8xlarge"``."""
    return f"{evaluation.rental.nodes} × {evaluation.rental.instance}"


def _dollar_parts(evaluation: Evaluation) -> Mapping[str, float]:
    """The bill's mean: training by its stalls, and every other item."""
    parts = {
        part.name: float(spent.mean())
        for part, spent in zip(evaluation.billed.predicted, evaluation.billed.stall_dollars, strict=True)
    }
    return parts | {
        part.name: float(part.dollars.mean()) for part in evaluation.billed.parts if part.name != "training"
    }


# Ties, and the experiment that would settle one

NEAR = 0.10
"""Of the chosen one's mean: what is farther is no tie, however uncertain."""
SECONDS = 300.0
"""Of an experiment: a probe's or a profile's budget with room for its start."""
_SETTLES = 0.5
"""Of the difference's variance: what leaves less than this is said to settle a tie."""


def objective(goal: Goal, evaluation: Evaluation) -> Array:
    """What is to be least, ``[draws]``."""
    return evaluation.billed.seconds if aim(goal) == "seconds" else evaluation.billed.dollars


def difference(goal: Goal, evaluation: Evaluation, chosen: Evaluation) -> Array:
    """How much worse than the chosen one, ``[draws]``."""
    return objective(goal, evaluation) - objective(goal, chosen)


def tied(goal: Goal, evaluation: Evaluation, chosen: Evaluation) -> bool:
    mean = float(objective(goal, chosen).mean())
    less = difference(goal, evaluation, chosen)
    return float(less.mean()) <= NEAR * mean and not apart(less)


@dataclass(frozen=True, eq=False)
class _Trial:
    """One experiment on one candidate's machine, and what it leaves of the difference's variance."""

    words: tuple[str, ...]
    on: Evaluation
    left: float
    text: str

    @property
    def price(self) -> float:
        return self.on.rental.dollars_per_hour * SECONDS / 3600


def experiment(goal: Goal, chosen: Evaluation, ties: Sequence[Evaluation]) -> Experiment | None:
    """The cheapest that settles the tie with the closest rival, else what tells most; ``None`` if nothing can."""
    if not ties:
        return None
    rival = min(ties, key=lambda each: abs(float(difference(goal, each, chosen).mean())))
    trials = list(_trials(goal, chosen, rival))
    if not trials:
        return None
    settling = [each for each in trials if each.left <= _SETTLES]
    best = min(settling, key=lambda each: each.price) if settling else min(trials, key=lambda each: each.left)
    verdict = "settles this" if settling else f"tells {1 - best.left:.0%} of what is uncertain about this"
    what = "probe" if best.words[1] == "probe" else "profile"
    return Experiment(
        command=best.words,
        on=best.on.rental.instance,
        seconds=SECONDS,
        dollars=best.price,
        text=f"one {SECONDS / 60:.0f}-minute {what} of {name(best.on)} {verdict}: it {best.text}; it costs "
        f"{dollars(best.price)}",
    )


def _trials(goal: Goal, chosen: Evaluation, rival: Evaluation) -> Iterator[_Trial]:
    """Every experiment on either machine that would tell anything."""
    whole = float(np.var(difference(goal, rival, chosen)))
    if whole <= 0:
        return
    for on, other, sign in ((rival, chosen, 1.0), (chosen, rival, -1.0)):
        against = objective(goal, other)
        if aim(goal) == "seconds":
            of_stall = {part.name: on.steps * part.seconds for part in on.billed.predicted}
        else:
            spent = zip(on.billed.predicted, on.billed.stall_dollars, strict=True)
            of_stall = {part.name: dollars_of for part, dollars_of in spent}
        for words, parts, text in _experiments(on):
            known = sum((of_stall[each] for each in parts), np.zeros_like(against))
            settled = objective(goal, on) - known + known.mean()
            left = float(np.var(sign * (settled - against))) / whole
            if left < 1:
                yield _Trial(words, on, left, text)


def _experiments(on: Evaluation) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], str]]:
    """Commands, the stalls that each would tell, and what it does."""
    published = tuple(
        part.name for part in on.drawn.parts if part.name in EXCHANGE_STALLS and part.origin == "data sheet"
    )
    if published:
        yield ("stash", "probe"), published, f"measures the links that {' and '.join(published)} are forecast from"
    forecast = tuple(part.name for part in on.drawn.parts if part.origin != "measured")
    profile = tuple(shlex.split(command(on.shape.base.profile)))
    if forecast:
        yield profile, forecast, "measures the step that is forecast"


# Standings

LISTED = 60
"""Types that lost of which the best is forecast and shown, those with the least bound first."""
SLACK = 0.05
"""Of a loser: what is shown of its type is proven to be as near as this to the type's best."""


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


def standings(problem: PlanProblem, candidates: CandidateSet, goal: Goal, listed: Sequence[str]) -> Standings:
    """Of every candidate; types in ``listed`` are shown whatever they are."""
    evaluator, measure, limits = problem.evaluator, aim(goal), limits_of(goal)
    best = front(evaluator, candidates.chains, limits)
    chosen = None if not best else best[-1] if measure == "seconds" else best[0]
    near = np.inf if chosen is None else (1 + NEAR) * getattr(chosen, measure)
    on_front = {each.rentable.key for each in best}
    ties: list[Evaluation] = []
    lost: list[Evaluation] = []
    infeasible: list[Evaluation] = []
    unlisted = 0
    by_bound = sorted(candidates.types().items(), key=lambda item: _bound(item[1], measure, limits))
    asked_for = {each.lower() for each in listed}
    for key, chains in by_bound:
        if chosen is not None and key == chosen.rentable.key:
            continue
        named = not asked_for.isdisjoint((key.lower(), key.partition("/")[2].lower()))
        shown = key not in on_front and (len(lost) + len(infeasible) < LISTED or named)
        may_tie = chosen is not None and _bound(chains, measure, limits) <= near
        if not shown and not may_tie:
            unlisted += key not in on_front
            continue
        evaluation = None if chosen is None else _best(evaluator, chains, measure, limits, near)
        if evaluation is not None and chosen is not None and tied(goal, evaluation, chosen):
            ties.append(evaluation)
        elif not shown:
            unlisted += key not in on_front
        elif evaluation is not None:
            lost.append(evaluation)
        else:
            infeasible += _nearest_miss(evaluator, chains)
    rest = tuple(each for each in best if each is not chosen and each not in ties)
    return Standings(chosen, tuple(ties), rest, tuple(lost), tuple(infeasible), unlisted)


def _bound(chains: Sequence[CandidateChain], measure: Measure, limits: GoalLimits) -> float:
    """The least that any candidate of a type can be; infinite if none keeps the limits."""
    rows = [(getattr(chain.least, measure), limits.keeps(chain.least)) for chain in chains]
    return min(float(values[keeps].min(initial=np.inf)) for values, keeps in rows)


def _best(
    evaluator: Evaluator, chains: Sequence[CandidateChain], measure: Measure, limits: GoalLimits, near: float
) -> Evaluation | None:
    """Of one type; exactly where it may be a tie, else as near as ``SLACK``."""
    evaluation = least(evaluator, chains, measure, limits, SLACK)
    if evaluation is None or getattr(evaluation, measure) > near * (1 + SLACK):
        return evaluation
    return least(evaluator, chains, measure, limits)


def _nearest_miss(evaluator: Evaluator, chains: Sequence[CandidateChain]) -> list[Evaluation]:
    """Of a type that is not feasible what comes nearest: the fastest of its forecasts, else of its bounds."""
    for forecast in (True, False):
        rows = [
            np.where((chain.stage > FLOOR) | (not forecast), chain.least.sure_seconds, np.inf) for chain in chains
        ]
        nearest = min(range(len(chains)), key=lambda number: float(rows[number].min()))
        if np.isfinite(rows[nearest]).any():
            break
    else:
        return []
    chain, number = chains[nearest], int(rows[nearest].argmin())
    if chain.stage[number] == FLOOR:
        evaluator.advance(chain, number)
        return _nearest_miss(evaluator, chains)  # it may be that this one cannot be forecast
    return [evaluator.evaluated(chain, number)]
