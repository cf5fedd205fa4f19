"""What being late is taken to cost, and what is no choice: chosen on half of the models, judged on the other half.

On the published tables of ``bench.plan``, from the product's forecasts; the choice is the arithmetic that
``plan.recommend`` does in its search. Of the settings that keep 95 % of the deadlines the one that costs least more
than the best is chosen, else the one that keeps most. Each halving is judged both ways.

python -m bench.plan.held_out
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from bench.machine import arguments
from bench.plan.published import TODAY, Question, questions
from bench.table import table
from stash.plan.bill import BillFacts
from stash.plan.records import IN_BUDGET, IN_TIME, Constraints, Goal
from stash.plan.search import PlanProblem
from stash.plan.settings import step_plan
from stash.predict.draws import Array

HALVINGS = 20
NEEDED = 0.95
"""Of deadlines that are to be kept."""


class Setting(NamedTuple):
    """How lateness is weighed."""

    likely: float
    """Probability of being in time below which it is no choice."""
    sure: float | None
    """Being late costs the bill of the cheapest that is so probably in time; ``None``: the choice's own."""


SETTINGS = tuple(
    Setting(*each) for each in product((0.1, 0.2, 0.3, 0.5), (None, 0.8, IN_BUDGET, 0.95))
)
SHIPPED = Setting(IN_TIME, IN_BUDGET)


def choose(setting: Setting, seconds: Array, dollars: Array, deadline: float) -> int | None:
    """Which candidate, of draws ``[candidates, draws]``; ``None``: nothing is likely enough."""
    late = seconds > deadline
    chances, bills = 1 - late.mean(axis=1), dollars.mean(axis=1)
    if not (chances >= setting.likely).any():
        return None
    if setting.sure is None:
        costs = (dollars * late).mean(axis=1)
    else:
        sure = chances >= (setting.sure if (chances >= setting.sure).any() else setting.likely)
        costs = bills[sure].min() * (1 - chances)
    return int(np.where(chances >= setting.likely, bills + costs, np.inf).argmin())


def _drawn(question: Question) -> tuple[list[str], Array, Array]:
    """Names, and seconds and dollars of each, ``[candidates, draws]``."""
    plan = step_plan([question.base], Goal(work=question.work), ["published"])
    problem = PlanProblem([question.base], plan, question.catalog, BillFacts(), {}, TODAY)
    chains = problem.candidates(Constraints(most_nodes=1)).chains
    found = [problem.evaluator.evaluate(chain, 0) for chain in chains]
    return (
        [each.rental.instance for each in found],
        np.array([each.billed.seconds for each in found]),
        np.array([each.billed.dollars for each in found]),
    )


def _judged(question: Question) -> Iterator[list[tuple[float, float]]]:
    """Of each deadline that something keeps, by setting: whether it is kept, and its cost over the best's less 1."""
    names, seconds, dollars = _drawn(question)
    truths = [question.truths[name] for name in names]
    for goal in question.goals():
        if goal.deadline_seconds is None:
            continue
        least = min(truth.dollars for truth in question.truths.values() if truth.keeps(goal))
        chosen = (choose(setting, seconds, dollars, goal.deadline_seconds) for setting in SETTINGS)
        kept = (
            None if each is None or not truths[each].keeps(goal) else truths[each].dollars
            for each in chosen
        )
        yield [(0.0, np.nan) if each is None else (1.0, each / least - 1) for each in kept]


def page() -> str:
    models, rows = [], []
    for question in questions():
        judged = list(_judged(question))
        models += [question.job.model] * len(judged)
        rows += judged
    found = np.array(rows)  # [decisions, settings, kept and more]
    names, place = np.unique(models, return_inverse=True)
    random, results = np.random.default_rng(0), []
    for _ in range(HALVINGS):
        half = (random.permutation(len(names)) < len(names) // 2)[place]
        held_out = np.empty((len(found), 2))
        for chosen_on in (half, ~half):
            kept, more = (
                found[chosen_on, :, 0].mean(axis=0),
                np.nanmean(found[chosen_on, :, 1], axis=0),
            )
            enough = kept >= NEEDED
            best = np.where(enough, more, np.inf).argmin() if enough.any() else kept.argmax()
            held_out[~chosen_on] = found[~chosen_on, best]
        results.append((held_out[:, 0].mean(), np.nanmean(held_out[:, 1])))
    lines = [
        [
            f"{each.likely:.0%}",
            "its own" if each.sure is None else f"{each.sure:.0%}",
            f"{kept:.1%}",
            f"{more:.1%}",
        ]
        for each, kept, more in zip(
            SETTINGS, found[..., 0].mean(axis=0), np.nanmean(found[..., 1], axis=0), strict=True
        )
    ]
    kept, more = np.mean(results, axis=0)
    heads = (
        "no choice below",
        "late costs the bill of what is so sure",
        "kept",
        "more than the best",
    )
    return (
        f"{table(heads, lines)}\n\nChosen on half of {len(names)} models and judged on the other, in the mean over "
        f"{HALVINGS} halvings: {kept:.1%} kept, {more:.1%} more. Shipped: {SHIPPED.likely:.0%}, {SHIPPED.sure:.0%}."
    )


if __name__ == "__main__":
    arguments(__doc__)
    print(page())
