"""The way in: profiles, a goal and what may be rented in, a plan out.

Asks the question, has every candidate's standing found, and makes the record of it: each choice with its reason, and
what was taken for granted. Decides nothing itself; nothing is read or written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

import numpy as np

from stash.base.plan import Choice, ChoiceStanding, Constraints, Goal, RentalPlan, RuleChoice
from stash.base.stats.intervals import Interval
from stash.base.version import __version__
from stash.derive.plan import reasons
from stash.derive.plan.bill import BillFacts, not_counted
from stash.derive.plan.candidates import old_prices
from stash.derive.plan.question import Field, RentalQuestion
from stash.derive.plan.relaxing import relaxations
from stash.derive.plan.ruled import ruled
from stash.derive.plan.standings import Standings, standings
from stash.derive.plan.ties import difference, experiment
from stash.derive.plan.weighing import Calibration, Weighed
from stash.derive.plan.work import said, step_plan
from stash.derive.predict.target.cluster import Target
from stash.derive.predict.uncertainty.draws import intervals
from stash.derive.predict.uncertainty.quantity import worst
from stash.derive.predict.whatif.base import Base
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
    question = RentalQuestion(bases, plan, catalog, bill, machines or {}, now, calibrate)
    field = question.field(constraints)
    found = standings(question, field, goal, listed)
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
        yield _choice(goal, chosen, "chosen", reasons.of_chosen(goal, chosen))
        for each in found.ties:
            better = float(np.mean(difference(goal, each, chosen) < 0))
            yield _choice(goal, each, "tied", reasons.of_tied(goal, chosen, better))
        for each in found.front:
            yield _choice(goal, each, "front", reasons.of_front(each, chosen))
        for each in found.lost:
            yield _choice(goal, each, "lost", reasons.of_loser(goal, each, chosen))
    for each in found.infeasible:
        yield _choice(goal, each, "infeasible", reasons.of_infeasible(goal, each))


def _ruled(
    question: RentalQuestion, field: Field, goal: Goal, catalog: Catalog, found: Standings
) -> tuple[RuleChoice, ...]:
    """What other ways to choose would have rented, beside what this one did."""
    best = None if found.chosen is None else _choice(goal, found.chosen, "chosen", "")
    return ruled(question, field, goal, catalog, best, lambda each: _choice(goal, each, "lost", "a rule's choice"))


def _choice(goal: Goal, found: Weighed, standing: ChoiceStanding, why: str) -> Choice:
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


def _step(found: Weighed) -> Interval:
    (step,) = intervals(found.drawn.step[np.newaxis])
    known = all(part.spread_known for part in found.drawn.parts)
    return step if known else Interval(value=step.value)


def _assumed(
    question: RentalQuestion, field: Field, bill: BillFacts, files: Sequence[str], unlisted: int
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
