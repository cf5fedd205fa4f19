"""Who is chosen, who is tied with it, what is on the front, and what lost.

The front of all that keeps deadline and budget is exact, and so is the choice, which is one of its ends. Of every
other type its best is looked at, as it may be tied, and as people want to know why it lost. Makes no sentence of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stash.base.plan import Goal
from stash.derive.plan.question import Field, RentalQuestion
from stash.derive.plan.search import GoalLimits, Measure, aim, front, least, limits_of
from stash.derive.plan.ties import NEAR, tied
from stash.derive.plan.weighing import FLOOR, Chain, Weighed, Weighing

LISTED = 60
"""Types that lost of which the best is forecast and shown, those with the least bound first."""
SLACK = 0.05
"""Of a loser: what is shown of its type is proven to be as near as this to the type's best."""


@dataclass(frozen=True, eq=False)
class Standings:
    """Every candidate that is shown."""

    chosen: Weighed | None
    ties: tuple[Weighed, ...]
    """One a type, and none of the chosen one's."""
    front: tuple[Weighed, ...]
    """Without the chosen one and its ties; the cheapest first."""
    lost: tuple[Weighed, ...]
    infeasible: tuple[Weighed, ...]
    unlisted: int
    """Types that are proven worse and not shown."""


def standings(question: RentalQuestion, field: Field, goal: Goal, listed: Sequence[str]) -> Standings:
    """Of every candidate; types in ``listed`` are shown whatever they are."""
    weighing, measure, limits = question.weighing, aim(goal), limits_of(goal)
    best = front(weighing, field.chains, limits)
    chosen = None if not best else best[-1] if measure == "seconds" else best[0]
    near = np.inf if chosen is None else (1 + NEAR) * getattr(chosen, measure)
    on_front = {each.rentable.key for each in best}
    ties: list[Weighed] = []
    lost: list[Weighed] = []
    infeasible: list[Weighed] = []
    unlisted = 0
    for key, chains in _nearest_first(field, measure, limits):
        if chosen is not None and key == chosen.rentable.key:
            continue
        shown = key not in on_front and (len(lost) + len(infeasible) < LISTED or _named(key, listed))
        may_tie = chosen is not None and _bound(chains, measure, limits) <= near
        if not shown and not may_tie:
            unlisted += key not in on_front
            continue
        found = None if chosen is None else _best(weighing, chains, measure, limits, near)
        if found is not None and chosen is not None and tied(goal, found, chosen):
            ties.append(found)
        elif not shown:
            unlisted += key not in on_front
        elif found is not None:
            lost.append(found)
        else:
            infeasible += _nearest_miss(weighing, chains)
    rest = tuple(each for each in best if each is not chosen and each not in ties)
    return Standings(chosen, tuple(ties), rest, tuple(lost), tuple(infeasible), unlisted)


def _nearest_first(field: Field, measure: Measure, limits: GoalLimits) -> list[tuple[str, list[Chain]]]:
    """Types with their chains, that with the least bound first."""
    return sorted(field.types().items(), key=lambda item: _bound(item[1], measure, limits))


def _bound(chains: Sequence[Chain], measure: Measure, limits: GoalLimits) -> float:
    """The least that any candidate of a type can be; infinite if none keeps the limits."""
    rows = [(getattr(chain.least, measure), limits.keeps(chain.least)) for chain in chains]
    return min(float(values[keeps].min(initial=np.inf)) for values, keeps in rows)


def _named(key: str, listed: Sequence[str]) -> bool:
    names = {key.lower(), key.partition("/")[2].lower()}
    return any(each.lower() in names for each in listed)


def _best(
    weighing: Weighing, chains: Sequence[Chain], measure: Measure, limits: GoalLimits, near: float
) -> Weighed | None:
    """Of one type; exactly where it may be a tie, else as near as ``SLACK``."""
    found = least(weighing, chains, measure, limits, SLACK)
    if found is None or getattr(found, measure) > near * (1 + SLACK):
        return found
    return least(weighing, chains, measure, limits)


def _nearest_miss(weighing: Weighing, chains: Sequence[Chain]) -> list[Weighed]:
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
        weighing.advance(chain, number)
        return _nearest_miss(weighing, chains)  # it may be that nobody can forecast this one
    return [weighing.weighed(chain, number)]
