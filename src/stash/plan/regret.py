"""What a choice risks: how probably it is the best, what being wrong costs, and what one more measurement is worth.

All candidates are compared in the same draws, so that an error that several share (the speed of one model of GPU, the
links, the exchange's model) counts once. The chance to be best is the share of draws in which nothing ranked does
better; regret is what the choice costs beyond the best of each draw. A measurement is worth what choosing after it is
expected to save: the value of partial information by regression (Strong, Oakley, Brennan 2014), a candidate's bill on
what the measurement tells; and, of what is not sure enough to keep the limits, whether it does. Of each type the best
setting and node count stands for all. What a forecast does not draw (interruptions, queues) is in none of it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stash.core.formatting import format_chance, format_dollars, format_span
from stash.plan.evaluation import Evaluation
from stash.plan.records import Experiment, Goal, Risk
from stash.plan.settings import PROFILED
from stash.predict.draws import Array, intervals
from stash.predict.passes import profile_command

SECONDS = 300.0
"""That a machine is rented for an experiment: its start, and the seconds below."""
_TRIED = 6
"""Candidates on whose machines an experiment is considered: those that are most probably the best."""
_EQUAL = 1e-9
"""Costs nearer than that are equal: what rounding leaves of them is the processor's."""


def chances(evaluations: Sequence[Evaluation]) -> Array:
    """How probably each is the best of them, ``[evaluations]``; those that are equal in a draw share it."""
    every = np.array([each.objective for each in evaluations])
    least = every.min(axis=0)
    best = every <= least + _EQUAL * np.abs(least)
    shares: Array = (best / best.sum(axis=0)).mean(axis=1)
    return shares


def measure_risk(goal: Goal, chosen: Evaluation, evaluations: Sequence[Evaluation]) -> Risk:
    """Measure the risk of choosing that one of them now."""
    every = np.array([each.objective for each in evaluations])
    (regret,) = intervals((chosen.objective - every.min(axis=0))[np.newaxis])
    return Risk(
        best=float(chances(evaluations)[[each is chosen for each in evaluations].index(True)]),
        regret=regret,
        unit=goal.aim,
        among=len(evaluations),
    )


# The experiment that is worth its price


@dataclass(frozen=True, eq=False)
class _Trial:
    """A profile on one candidate's machine."""

    on: Evaluation
    worth: float
    """Seconds or dollars, as ``Goal.aim`` says."""
    chance: float | None = None
    """That it keeps the limits, where that is what would be known; ``None``: it does, surely enough."""

    @property
    def price(self) -> float:
        return self.on.rental.dollars_per_hour * SECONDS / 3600

    def gain(self, goal: Goal) -> float:
        return self.worth - (SECONDS if goal.aim == "seconds" else self.price)


def information_value(evaluations: Sequence[Evaluation], outcome: Array) -> float:
    """What knowing ``outcome``, ``[draws]``, before choosing is expected to save, seconds or dollars; 0 or more."""
    spread = float(outcome.std())
    every = np.array([each.objective for each in evaluations])
    means = every.mean(axis=1, keepdims=True)
    if not spread:
        return 0.0
    away = (outcome - outcome.mean()) / spread
    slopes = (every - means) @ away / len(away)
    expected = means + slopes[:, np.newaxis] * away
    return max(0.0, float(means.min() - expected.min(axis=0).mean()))


def expected_saving(chosen: Array, other: Array, keeps: NDArray[np.bool_]) -> float:
    """What knowing whether another candidate keeps the limits is expected to save, by ``[draws]`` of what is to be
    least: it is then chosen where it does, and is less."""
    return float(np.where(keeps, np.maximum(0.0, chosen - other), 0.0).mean())


def find_experiment(
    goal: Goal,
    chosen: Evaluation,
    evaluations: Sequence[Evaluation],
    unsure: Sequence[Evaluation] = (),
) -> Experiment | None:
    """What to measure before renting: whatever saves most beyond its price; ``None`` where guessing is cheaper.

    ``evaluations`` keep the limits of the goal as surely as it asks for, ``unsure`` do not.
    """
    probable = np.argsort(-chances(evaluations), kind="stable")[:_TRIED]
    tried = dict.fromkeys((chosen, *(evaluations[int(each)] for each in probable)))
    outcomes = ((on, _outcome(goal, on)) for on in tried)
    trials = [
        _Trial(on, information_value(evaluations, outcome))
        for on, outcome in outcomes
        if outcome is not None
    ]
    for on in unsure:
        keeps = _keeps_limits(goal, on)
        trials.append(
            _Trial(on, expected_saving(chosen.objective, on.objective, keeps), float(keeps.mean()))
        )
    best = max(trials, key=lambda each: each.gain(goal), default=None)
    return None if best is None or best.gain(goal) <= 0 else _make_experiment(goal, best)


def _keeps_limits(goal: Goal, evaluation: Evaluation) -> NDArray[np.bool_]:
    """In which draws it is in time and within the budget."""
    billed, most = evaluation.billed, (goal.deadline_seconds, goal.budget_dollars)
    limits = [np.inf if each is None else each for each in most]
    return np.logical_and(billed.seconds <= limits[0], billed.dollars <= limits[1])


def _make_experiment(goal: Goal, trial: _Trial) -> Experiment:
    saves = format_span(trial.worth) if goal.aim == "seconds" else format_dollars(trial.worth)
    unsure = (
        ""
        if trial.chance is None
        else f", as it keeps the limits with {format_chance(trial.chance)} probability"
    )
    return Experiment(
        command=tuple(shlex.split(profile_command(trial.on.shape.base.profile))),
        on=trial.on.rental.instance,
        seconds=SECONDS,
        dollars=trial.price,
        worth=trial.worth,
        text=f"profile on 1 × {trial.on.rental.instance} before renting ({PROFILED:.0f} s, "
        f"{format_dollars(trial.price)} for {SECONDS / 60:.0f} minutes of it){unsure}: choosing after it saves an "
        f"expected "
        f"{saves}",
    )


def _outcome(goal: Goal, on: Evaluation) -> Array | None:
    """What a profile would tell of this candidate, ``[draws]``, in what is to be least; ``None``: all is measured."""
    if goal.aim == "seconds":
        of_stall = {part.name: on.steps * part.seconds for part in on.billed.predicted}
    else:
        spent = zip(on.billed.predicted, on.billed.stall_dollars, strict=True)
        of_stall = {part.name: dollars_of for part, dollars_of in spent}
    names = [part.name for part in on.drawn.parts if part.origin != "measured"]
    return np.sum([of_stall[each] for each in names], axis=0) if names else None
