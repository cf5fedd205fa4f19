"""Choices that are equal within what is known, and the cheapest experiment that would tell them apart.

Two choices are tied if the difference of what is to be least, in paired draws, has zero within its 95 % interval, and
their means lie within ``NEAR``: as uncertain as a forecast may be, one that is much worse on average is no equal
(``docs/decisions/0016``). An experiment tells what it measures: a probe the links of a machine, a profile all of its
step. What would remain uncertain then is the same difference with that part at its mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stash.base.ladder import EXCHANGE_STALLS
from stash.base.plan import Experiment, Goal
from stash.derive.plan.chance import apart
from stash.derive.plan.reasons import dollars, name
from stash.derive.plan.search import aim
from stash.derive.plan.weighing import Weighed
from stash.derive.predict.uncertainty.draws import Array
from stash.derive.predict.whatif.refusing import command

NEAR = 0.10
"""Of the chosen one's mean: what is farther is no tie, however uncertain."""
SECONDS = 300.0
"""Of an experiment: a probe's or a profile's budget with room for its start."""
_SETTLES = 0.5
"""Of the difference's variance: what leaves less than this is said to settle a tie."""


def objective(goal: Goal, found: Weighed) -> Array:
    """What is to be least, ``[draws]``."""
    return found.billed.seconds if aim(goal) == "seconds" else found.billed.dollars


def difference(goal: Goal, found: Weighed, chosen: Weighed) -> Array:
    """How much worse than the chosen one, ``[draws]``."""
    return objective(goal, found) - objective(goal, chosen)


def tied(goal: Goal, found: Weighed, chosen: Weighed) -> bool:
    mean = float(objective(goal, chosen).mean())
    less = difference(goal, found, chosen)
    return float(less.mean()) <= NEAR * mean and not apart(less)


@dataclass(frozen=True, eq=False)
class _Trial:
    """One experiment on one candidate's machine, and what it leaves of the difference's variance."""

    words: tuple[str, ...]
    on: Weighed
    left: float
    text: str

    @property
    def price(self) -> float:
        return self.on.rental.dollars_per_hour * SECONDS / 3600


def experiment(goal: Goal, chosen: Weighed, ties: Sequence[Weighed]) -> Experiment | None:
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


def _trials(goal: Goal, chosen: Weighed, rival: Weighed) -> Iterator[_Trial]:
    """Every experiment on either machine that would tell anything."""
    whole = float(np.var(difference(goal, rival, chosen)))
    if whole <= 0:
        return
    for on, other, sign in ((rival, chosen, 1.0), (chosen, rival, -1.0)):
        against = objective(goal, other)
        for words, parts, text in _experiments(on):
            known = sum((_of_part(goal, on, each) for each in parts), np.zeros_like(against))
            settled = objective(goal, on) - known + known.mean()
            left = float(np.var(sign * (settled - against))) / whole
            if left < 1:
                yield _Trial(words, on, left, text)


def _experiments(on: Weighed) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], str]]:
    """Commands, the stalls that each would tell, and what it does."""
    published = tuple(
        part.name for part in on.drawn.parts if part.name in EXCHANGE_STALLS and part.origin == "data sheet"
    )
    if published:
        yield ("stash", "probe"), published, f"measures the links that {' and '.join(published)} are forecast from"
    told = tuple(part.name for part in on.drawn.parts if part.origin != "measured")
    profile = tuple(shlex.split(command(on.shape.base.profile)))
    if told:
        yield profile, told, "measures the step that is forecast"


def _of_part(goal: Goal, on: Weighed, stall: str) -> Array:
    """What a stall adds to what is to be least, ``[draws]``."""
    place = next(number for number, part in enumerate(on.billed.predicted) if part.name == stall)
    if aim(goal) == "seconds":
        return on.steps * on.billed.predicted[place].seconds
    return on.billed.stall_dollars[place]
