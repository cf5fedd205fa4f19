"""Choices held against the truth: whether what was asked for was kept, and what was paid more than the best.

A truth is what every candidate really takes and costs; a chooser names one of them, or none, without seeing it. Knows
no fleet, no table and no way to choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.common import table
from stash.plan.records import Goal

SURELY, LIKELY = 0.9, 0.51
"""The confidence that ``stash recommend`` asks for by itself, and the least that a goal can have."""
CLOSE = 0.03
"""More than the best, of what was asked for, that still counts as the best."""


@dataclass(frozen=True)
class Truth:
    """What the whole training takes on one candidate, and what it costs."""

    seconds: float
    dollars: float

    def keeps(self, goal: Goal) -> bool:
        on_time = goal.deadline_seconds is None or self.seconds <= goal.deadline_seconds
        return on_time and (goal.budget_dollars is None or self.dollars <= goal.budget_dollars)

    def of(self, goal: Goal) -> float:
        """What is to be small: the time where only money is limited, else the money."""
        return self.seconds if goal.deadline_seconds is None and goal.budget_dollars is not None else self.dollars


@dataclass(frozen=True)
class Verdict:
    """One choice for one goal."""

    chosen: str | None
    """``None``: it was said that nothing keeps the goal."""
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
    best = min(keeping, key=lambda name: keeping[name].of(goal)) if keeping else None
    if chosen not in keeping or best is None:
        return Verdict(chosen, best)
    return Verdict(chosen, best, True, keeping[chosen].of(goal) / keeping[best].of(goal) - 1)


HEADS = (
    *("who chooses", "goals", "kept", "chose nothing", "within 3 % of the best"),
    *("more than the best: median", "90th", "worst"),
)


def verdict_table(by_chooser: Mapping[str, Sequence[Verdict]]) -> str:
    """In Markdown, a line a chooser, over the goals that something keeps."""
    return table(HEADS, [_line(name, verdicts) for name, verdicts in by_chooser.items()])


def _line(name: str, verdicts: Iterable[Verdict]) -> list[str]:
    possible = [each for each in verdicts if each.best is not None]
    more = [each.more for each in possible if each.more is not None]
    count = len(possible)
    if not count:
        return [name, "0", *["–"] * (len(HEADS) - 2)]
    kept, none, right = (
        f"{sum(true) / count:.0%}"
        for true in zip(*((each.kept, each.chosen is None, each.right) for each in possible), strict=True)
    )
    percentiles = [f"{np.percentile(more, q):.1%}" for q in (50, 90, 100)] if more else ["–"] * 3
    return [name, str(count), kept, none, right, *percentiles]


BINS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


def reliability_table(said: Sequence[tuple[float, bool]]) -> str:
    """Of (probability, whether it came true): what was said and how often it did, in Markdown."""
    lines = []
    for low, high in pairwise(BINS):
        inside = [each for each in said if low <= each[0] < high or each[0] == high == BINS[-1]]
        if inside:
            mean = float(np.mean([probability for probability, _ in inside]))
            came = float(np.mean([true for _, true in inside]))
            lines.append([f"{low:.0%} to {high:.0%}", str(len(inside)), f"{mean:.1%}", f"{came:.1%}"])
    return table(["said", "cases", "mean of what was said", "came true"], lines)
