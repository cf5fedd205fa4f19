"""Choices held against the truth: whether what was asked for was kept, and what was paid more than the best.

A truth is what every candidate really takes and costs; a chooser names one of them, or none, without seeing it. Knows
no fleet and no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.table import table
from stash.plan.records import Goal

SURELY = 0.9
"""A confidence to ask for, beside what ``stash recommend`` does by itself."""
CLOSE = 0.03
"""More than the best, of what was asked for, that still counts as the best."""
HEADS = (
    *("who chooses", "goals", "kept", "chose nothing", "within 3 % of the best"),
    *("more than the best: mean", "median", "90th", "worst"),
)
BINS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Truth:
    """What the whole training takes on one candidate, and what it costs."""

    seconds: float
    dollars: float

    @classmethod
    def make(cls, seconds: float, dollars_per_hour: float) -> Truth:
        return cls(seconds, seconds / 3600 * dollars_per_hour)

    def keeps(self, goal: Goal) -> bool:
        on_time = goal.deadline_seconds is None or self.seconds <= goal.deadline_seconds
        return on_time and (goal.budget_dollars is None or self.dollars <= goal.budget_dollars)

    def goal_value(self, goal: Goal) -> float:
        """What is to be small."""
        return self.seconds if is_time_minimised(goal) else self.dollars


def is_time_minimised(goal: Goal) -> bool:
    """Whether time is what is to be small: only money is limited."""
    return goal.deadline_seconds is None and goal.budget_dollars is not None


@dataclass(frozen=True)
class Verdict:
    """One choice for one goal."""

    chosen: str | None
    """``None``: it was decided that nothing keeps the goal."""
    best: str | None
    """``None``: nothing does."""
    kept: bool = False
    more: float | None = None
    """What the choice takes of what is to be small, over the best, less 1; ``None`` if the goal was not kept."""

    @property
    def right(self) -> bool:
        """As good as the best, or truly nothing."""
        if self.best is None:
            return self.chosen is None
        return self.more is not None and self.more <= CLOSE


def judge(goal: Goal, truths: Mapping[str, Truth], chosen: str | None) -> Verdict:
    """The choice for a goal among candidates whose truth is known."""
    keeping = {name: truth for name, truth in truths.items() if truth.keeps(goal)}
    best = min(keeping, key=lambda name: keeping[name].goal_value(goal)) if keeping else None
    if chosen not in keeping or best is None:
        return Verdict(chosen, best)
    return Verdict(
        chosen, best, True, keeping[chosen].goal_value(goal) / keeping[best].goal_value(goal) - 1
    )


def verdict_table(by_chooser: Mapping[str, Sequence[Verdict]]) -> str:
    """A line a chooser, over the goals that something keeps."""
    return table(HEADS, [_line(name, verdicts) for name, verdicts in by_chooser.items()])


def _line(name: str, verdicts: Iterable[Verdict]) -> list[object]:
    possible = [each for each in verdicts if each.best is not None]
    more = [each.more for each in possible if each.more is not None]
    if not possible:
        return [name, 0, *["–"] * (len(HEADS) - 2)]
    shares = np.mean([(each.kept, each.chosen is None, each.right) for each in possible], axis=0)
    spent = [np.mean(more), *np.percentile(more, (50, 90, 100))] if more else []
    texts = [f"{each:.1%}" for each in spent] or ["–"] * 4
    return [name, len(possible), *(f"{share:.0%}" for share in shares), *texts]


def reliability_table(chances: Sequence[tuple[float, bool]]) -> str:
    """Of (probability, whether it came true): what was forecast and how often it did."""
    lines = []
    for low, high in pairwise(BINS):
        inside = [each for each in chances if low <= each[0] < high or each[0] == high == BINS[-1]]
        if inside:
            mean, came = np.mean(inside, axis=0)
            lines.append([f"{low:.0%} to {high:.0%}", len(inside), f"{mean:.1%}", f"{came:.1%}"])
    return table(["forecast", "cases", "mean forecast", "came true"], lines)
