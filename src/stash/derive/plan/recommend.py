"""The way in: profiles, a goal and what may be rented in, a plan out.

Finds the front of what keeps deadline and budget, takes its end as the choice, looks at the best of every other type
for ties and reasons, and says what was taken for granted. Every number comes from ``weighing``; nothing is read or
written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from stash.base.plan import Choice, ChoiceStanding, Constraints, Experiment, Goal, RentalPlan
from stash.base.stats.intervals import Interval
from stash.base.version import __version__
from stash.derive.plan import reasons
from stash.derive.plan.bill import BillFacts, not_counted
from stash.derive.plan.candidates import old_prices
from stash.derive.plan.question import Field, Question
from stash.derive.plan.relaxing import limits_of, relaxations
from stash.derive.plan.search import ANY, Limits, front, least
from stash.derive.plan.ties import NEAR, difference, experiment, tied
from stash.derive.plan.weighing import Chain, Weighed
from stash.derive.plan.work import said, step_plan
from stash.derive.predict.draws import intervals
from stash.derive.predict.quantity import worst
from stash.derive.predict.target import Target
from stash.derive.predict.whatif import Base
from stash.keep.catalog import Catalog

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
) -> RentalPlan:
    """What to rent for ``goal``: chosen, tied, the front, and what lost, each with its reason.

    ``files`` name the profiles of ``bases``, and ``now`` is the day that prices' ages are counted to. ``machines`` are
    one node each of instance types that were measured or described, by name: their facts replace those of the catalog.
    Types in ``listed`` are among the choices however bad they are. Raises UserError.
    """
    plan = step_plan(bases, goal)
    question = Question(bases, plan, catalog, bill, machines or {})
    field = question.field(constraints)
    outcome = _outcome(question, field, goal, listed)
    feasible = outcome.front or outcome.chosen
    taken, warned = said(plan)
    old = old_prices(field.market.rentables, constraints, now)
    draws = question.bases[0].draws
    return RentalPlan(
        stash_version=__version__,
        created=now.isoformat(),
        workload=bases[0].profile.workload.name,
        profiles=tuple(files),
        goal=goal,
        constraints=constraints,
        choices=tuple(outcome.choices(goal)),
        unranked=(*field.unranked, *question.weighing.unknown.values()),
        experiment=outcome.experiment,
        relaxations=() if feasible else relaxations(question, field, goal, constraints),
        assumptions=(*taken, *_assumed(question, field, bill, files, outcome)),
        warnings=(*warned, *(() if old is None else (old,))),
        weighed=field.weighed,
        pruned=field.weighed - sum(int(np.count_nonzero(chain.stage == 2)) for chain in field.chains),
        seed=draws.seed,
        draws=draws.count,
    )


@dataclass(frozen=True, eq=False)
class _Outcome:
    """Every candidate that is shown, by its standing."""

    chosen: Weighed | None
    ties: tuple[Weighed, ...]
    front: tuple[Weighed, ...]
    lost: tuple[Weighed, ...]
    infeasible: tuple[Weighed, ...]
    unlisted: int
    """Types that are not shown."""
    experiment: Experiment | None

    def choices(self, goal: Goal) -> Iterator[Choice]:
        chosen = self.chosen
        if chosen is not None:
            yield _choice(goal, chosen, "chosen", reasons.of_chosen(goal, chosen))
            for each in self.ties:
                better = float(np.mean(difference(goal, each, chosen) < 0))
                yield _choice(goal, each, "tied", reasons.of_tied(goal, each, chosen, better))
            for each in self.front:
                yield _choice(goal, each, "front", reasons.of_front(goal, each, chosen))
            for each in self.lost:
                yield _choice(goal, each, "lost", reasons.of_loser(goal, each, chosen))
        for each in self.infeasible:
            yield _choice(goal, each, "infeasible", reasons.of_infeasible(goal, each))


def _outcome(question: Question, field: Field, goal: Goal, listed: Sequence[str]) -> _Outcome:
    weighing, limits = question.weighing, limits_of(goal)
    measure = "seconds" if reasons.fastest(goal) else "dollars"
    best = front(weighing, field.chains, limits)
    chosen = None if not best else best[-1] if measure == "seconds" else best[0]
    near = np.inf if chosen is None else (1 + NEAR) * getattr(chosen, measure)
    ties, lost, infeasible = [], [], []
    on_front = {each.rentable.key for each in best}
    wanted = {name.lower() for name in listed}
    types = sorted(field.types().items(), key=lambda item: _least_bound(item[1], measure, limits))
    unlisted = 0
    for key, chains in types:
        could_tie = _least_bound(chains, measure, limits) <= near and chosen is not None
        named = bool({key.lower(), key.partition("/")[2].lower()} & wanted)
        shown = len(lost) + len(infeasible) < LISTED or named
        if chosen is not None and key == chosen.rentable.key:
            continue
        if not could_tie and not shown:
            unlisted += key not in on_front
            continue
        found = None if chosen is None else least(weighing, chains, measure, limits, SLACK)
        if found is not None and getattr(found, measure) <= near * (1 + SLACK):
            found = least(weighing, chains, measure, limits)  # it may be a tie, so no less than the best
        if found is not None and chosen is not None and tied(goal, found, chosen):
            ties.append(found)
        elif key in on_front:
            continue
        elif not shown:
            unlisted += 1
        elif found is not None:
            lost.append(found)
        else:
            infeasible.extend(_nearest_miss(question, chains))
    rest = tuple(each for each in best if each is not chosen and each not in ties)
    probe = None if chosen is None else experiment(goal, chosen, ties)
    return _Outcome(chosen, tuple(ties), rest, tuple(lost), tuple(infeasible), unlisted, probe)


def _least_bound(chains: Sequence[Chain], measure: str, limits: Limits) -> float:
    """The least that any candidate of a type can be; infinite if none keeps the limits."""
    rows = [(getattr(chain.least, measure), limits.keeps(chain.least)) for chain in chains]
    return min(float(values[keeps].min(initial=np.inf)) for values, keeps in rows)


def _nearest_miss(question: Question, chains: Sequence[Chain]) -> list[Weighed]:
    """Of a type that is not feasible, what comes nearest: its fastest, by its bound."""
    for looked_at in (True, False):  # its own forecasts first, and bounds only where there are none
        rows = [np.where((chain.stage > 0) | (not looked_at), chain.least.sure_seconds, np.inf) for chain in chains]
        nearest = min(range(len(chains)), key=lambda number: float(rows[number].min()))
        if np.isfinite(rows[nearest]).any():
            break
    else:
        return []
    chain, number = chains[nearest], int(rows[nearest].argmin())
    if chain.stage[number] == 0:
        question.weighing.advance(chain, number)
        return _nearest_miss(question, chains)  # it may be that nobody can forecast this one
    return [question.weighing.weighed(chain, number)]


# Records -----------------------------------------------------------------------------------------------------------


def _choice(goal: Goal, found: Weighed, standing: ChoiceStanding, why: str) -> Choice:
    parts = found.drawn.parts
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
        on_time=found.on_time(goal),
        within_budget=found.within_budget(goal),
        origin=worst(part.origin for part in parts),
        beyond=tuple(dict.fromkeys(sentence for part in parts for sentence in part.beyond)),
    )


def _step(found: Weighed) -> Interval:
    (step,) = intervals(found.drawn.step[np.newaxis])
    known = all(part.spread_known for part in found.drawn.parts)
    return step if known else Interval(value=step.value)


def _assumed(
    question: Question, field: Field, bill: BillFacts, files: Sequence[str], outcome: _Outcome
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
    if outcome.unlisted:
        yield f"{outcome.unlisted} more types are proven worse and not listed (--explain names one)"
