"""The exact search: best candidates first, and none left out but by proof.

Candidates stand in chains, one a type, price and shape, each node count with a lower bound of every number that is
compared (``bounds``). The one with the least bound is taken a stage further, until the least of all is no bound but
the number itself: nothing else can be less. That is A* on a set (Hart, Nilsson, Raphael 1968). A front is the same
search gone on: in ascending dollars, only what is sooner than all before it can belong to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stash.base.plan import Goal
from stash.derive.plan.bounds import Least
from stash.derive.plan.weighing import FLOOR, WHOLE, Chain, Weighed, Weighing

Measure = Literal["seconds", "dollars", "sure_seconds", "sure_dollars"]
_ALIKE = 1.02
"""Bounds of one chain this close count as equal when it is decided which node count to forecast first: the smallest,
as its forecast raises those of all others. Only the order depends on it."""


@dataclass(frozen=True)
class GoalLimits:
    """What candidates have to keep, with the confidence that is asked for; ``None``: anything."""

    seconds: float | None = None
    dollars: float | None = None

    def keeps(self, least: Least) -> NDArray[np.bool_]:
        """Which node counts may keep them, ``[node counts]``: those that cannot be forecast never do."""
        found = np.isfinite(least.seconds)
        if self.seconds is not None:
            found &= least.sure_seconds <= self.seconds
        if self.dollars is not None:
            found &= least.sure_dollars <= self.dollars
        return found


ANY = GoalLimits()


def limits_of(goal: Goal) -> GoalLimits:
    """What a candidate has to keep."""
    return GoalLimits(goal.deadline_seconds, goal.budget_dollars)


def aim(goal: Goal) -> Measure:
    """What is to be least: time where only the budget is said, money else."""
    return "seconds" if goal.budget_dollars is not None and goal.deadline_seconds is None else "dollars"


def least(
    weighing: Weighing, chains: Sequence[Chain], measure: Measure, limits: GoalLimits = ANY, slack: float = 0.0
) -> Weighed | None:
    """The candidate of least ``measure`` that keeps ``limits``; ``None`` if nothing does.

    With ``slack`` one that is proven to be within that part of the least, which takes fewer forecasts.
    """
    return next(ascending(weighing, chains, measure, limits, slack), None)


def front(weighing: Weighing, chains: Sequence[Chain], limits: GoalLimits = ANY) -> tuple[Weighed, ...]:
    """Whatever keeps ``limits`` and nothing else is both cheaper and sooner than, by means, the cheapest first."""
    found: list[Weighed] = []
    for each in ascending(weighing, chains, "dollars", limits, sooner=True):
        if found and found[-1].dollars == each.dollars:
            found.pop()  # as cheap, and later
        found.append(each)
    return tuple(found)


def ascending(
    weighing: Weighing,
    chains: Sequence[Chain],
    measure: Measure,
    limits: GoalLimits,
    slack: float = 0.0,
    sooner: bool = False,
) -> Iterator[Weighed]:
    """Candidates in ascending order of ``measure``, but for ``slack``.

    With ``sooner`` only those faster than all that came before.
    """
    rows = [chain.least for chain in chains]
    keys = np.array([_lowest(row, measure, limits) for row in rows])
    fastest = np.array([row.seconds.min(initial=np.inf) for row in rows])
    seen: dict[int, list[int]] = {}
    soonest = np.inf
    while len(keys) and np.isfinite(keys.min()):
        number = int(keys.argmin())
        chain, values = chains[number], getattr(rows[number], measure)
        open_ = limits.keeps(rows[number]) & (rows[number].seconds < soonest)
        open_[seen.get(number, [])] = False
        now = float(values[open_].min(initial=np.inf))
        if now > keys[number]:
            keys[number] = now
            continue
        place = _next(chain, values, open_, now)
        if chain.stage[place] < WHOLE:
            weighing.advance(chain, place)
            near_enough = slack and chain.stage[place] == WHOLE and values[place] <= now * (1 + slack)
            if not (near_enough and limits.keeps(rows[number])[place]):
                continue
        seen.setdefault(number, []).append(place)
        found = weighing.weighed(chain, place)
        if sooner:
            soonest = found.seconds
            keys[fastest >= soonest] = np.inf
        yield found


def _lowest(row: Least, measure: Measure, limits: GoalLimits) -> float:
    values = getattr(row, measure)[limits.keeps(row)]
    return float(values.min(initial=np.inf))


def _next(chain: Chain, values: NDArray[np.float64], open_: NDArray[np.bool_], now: float) -> int:
    """The node count to look at: that of the least bound, or a smaller one that would raise it."""
    best = int(np.flatnonzero(open_ & (values == now))[0])
    if chain.stage[best] != FLOOR:
        return best
    alike = open_ & (values <= now * _ALIKE) & (chain.stage == FLOOR)
    alike &= chain.shape.nodes >= min(chain.onward_from, int(chain.shape.nodes[best]))
    return int(np.flatnonzero(alike)[0])
