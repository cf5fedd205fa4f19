"""Choices on published measurements with a part of the table hidden: what they cost more than the best hidden one.

    python -m bench.plan.published                 both splits, twenty seeds each: a minute
    python -m bench.plan.published --seeds 3

A chooser is shown the visible part (``half_hidden``), and names one of a job's hidden set-ups for each goal: some
deadlines, some budgets. The hidden numbers then say what it would have taken and cost. Beside Stash's choice stand
the rules that people go by (``stash.plan.rules``), with the same facts before them. Choices are parted by what
``stash recommend`` would say that a profile of one other set-up is worth (``stash.plan.regret.saved``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bench.machine import arguments
from bench.plan.half_hidden import Known, Table, half_of_cells, half_of_models
from bench.plan.judged import (
    LIKELY,
    SURELY,
    Truth,
    Verdict,
    by_time,
    judge,
    offered,
    reliability_table,
    rules_choose,
    verdict_table,
)
from bench.plan.tables import Job, Setup, gavel, others, prices, synergy
from bench.table import table
from stash.plan.hourly_prices import kept, quantile_at
from stash.plan.records import Goal, TrainingWork
from stash.plan.regret import saved
from stash.plan.rules import RuleFacts
from stash.predict.draws import Array

SAMPLES = 1e8
DEADLINES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""Times what the job's cheapest visible set-up takes; eight V100 are up to 60 times as fast as a K80."""
BUDGETS = (4.0, 2.0, 1.0, 1 / 2, 1 / 4)
"""Times what it costs there."""
WORTH = (0.0, 0.03, 0.1, np.inf)
"""Of what the choice takes: bins of what a profile is worth."""
SPLITS: Mapping[str, Callable[[Table, int], Table]] = {
    "half of each job's cells are hidden": half_of_cells,
    "of half of the models all is hidden but one cell a job": half_of_models,
}


@dataclass(frozen=True, eq=False)
class Forecast:
    """A hidden set-up as draws of the whole training, ``[draws]``."""

    seconds: Array
    dollars: Array

    def drawn(self, goal: Goal) -> Array:
        """What is to be least."""
        return self.seconds if by_time(goal) else self.dollars

    def of(self, goal: Goal) -> float:
        return float(self.drawn(goal).mean())

    def keeps(self, goal: Goal) -> bool:
        """With the confidence that the goal asks for, as ``stash.plan`` does."""
        late, dear = goal.deadline_seconds, goal.budget_dollars
        on_time = late is None or quantile_at(self.seconds, goal.confidence) <= late
        return on_time and (dear is None or quantile_at(self.dollars, goal.confidence) <= dear)


def worth_of_profile(forecasts: Mapping[str, Forecast], goal: Goal, chosen: str) -> float:
    """What knowing one other set-up before choosing is expected to save, as a fraction of the choice's mean."""
    mine = forecasts[chosen].drawn(goal)
    most = [np.inf if each is None else each for each in (goal.deadline_seconds, goal.budget_dollars)]
    worth = (
        saved(mine, each.drawn(goal), (each.seconds <= most[0]) & (each.dollars <= most[1]))
        for name, each in forecasts.items()
        if name != chosen
    )
    return max(worth, default=0.0) / float(mine.mean())


def goals(seconds: float, dollars: float) -> list[Goal]:
    """Of one job, by what its cheapest visible set-up takes and costs."""
    work = TrainingWork(samples=SAMPLES, text=f"{SAMPLES:,.0f} samples")
    return [
        Goal(work=work),
        *(Goal(work=work, deadline_seconds=times * seconds) for times in DEADLINES),
        *(Goal(work=work, budget_dollars=times * dollars) for times in BUDGETS),
    ]


def stash(forecasts: Mapping[str, Forecast], goal: Goal) -> str | None:
    """The best by its mean of those that keep the goal surely enough."""
    keeping = [name for name, each in forecasts.items() if each.keeps(goal)]
    return min(keeping, key=lambda name: forecasts[name].of(goal)) if keeping else None


@dataclass(frozen=True, eq=False)
class Question:
    """One job of one split: what is visible of it, what is hidden, and what is asked."""

    job: Job
    visible: Mapping[Setup, float]
    hidden: tuple[Setup, ...]
    truths: Mapping[str, Truth]
    forecasts: Mapping[str, Forecast]

    @property
    def goals(self) -> list[Goal]:
        truth = Truth.at(SAMPLES / self.visible[self.profiled], self.profiled.dollars_per_hour)
        return goals(truth.seconds, truth.dollars)

    @property
    def profiled(self) -> Setup:
        """The cheapest of the visible set-ups: where the job ran so far."""
        return min(self.visible, key=lambda each: (each.dollars_per_hour, each.name))

    def verdicts(self) -> Iterator[tuple[str, Verdict]]:
        for goal in self.goals:
            for name, confidence in (("90% sure", SURELY), ("more likely than not", LIKELY)):
                asked = goal.model_copy(update={"confidence": confidence})
                yield f"Stash, {name}", judge(goal, self.truths, stash(self.forecasts, asked))
            for name, chosen in self._by_rules(goal).items():
                yield name, judge(goal, self.truths, chosen)

    def _by_rules(self, goal: Goal) -> dict[str, str | None]:
        """With the data sheets, and the speed of one GPU of each kind where that is visible."""
        offers = [offered(each.name, each.facts, each.count, 1, each.dollars_per_hour) for each in self.hidden]
        facts = RuleFacts(
            samples=SAMPLES,
            nodes=1,
            devices=self.profiled.count,
            precision=self.job.precision,
            deadline_seconds=goal.deadline_seconds,
            budget_dollars=goal.budget_dollars,
            rates={each.gpu: rate for each, rate in self.visible.items() if each.count == 1},
        )
        return rules_choose(offers, facts, lambda picked: picked.offer.instance.name)

    def worths(self) -> Iterator[tuple[float, float]]:
        """Of every choice that kept its goal: what a profile is said to be worth, and what the choice cost more."""
        for goal in self.goals:
            chosen = stash(self.forecasts, goal.model_copy(update={"confidence": SURELY}))
            verdict = judge(goal, self.truths, chosen)
            if chosen is not None and verdict.more is not None:
                yield worth_of_profile(self.forecasts, goal, chosen), verdict.more

    def least_regrets(self) -> Iterator[float]:
        """Of every goal that a hidden set-up keeps surely enough: what any choice costs more than the best, at least.

        In the mean over the draws in which the choice keeps the goal, of the choice for which that is least. No rule
        that is as sure, and knows no more than what is visible, can expect less, if the draws' spread is right.
        """
        drawn = {name: (each.seconds, each.dollars) for name, each in self.forecasts.items()}
        for goal in self.goals:
            late, dear = (np.inf if each is None else each for each in (goal.deadline_seconds, goal.budget_dollars))
            kept = np.array([(seconds <= late) & (dollars <= dear) for seconds, dollars in drawn.values()])
            values = np.array([each.drawn(goal) for each in self.forecasts.values()])
            best = np.where(kept, values, np.inf).min(axis=0, initial=np.inf)
            sure = [
                float((value[keeps] / best[keeps] - 1).mean())
                for value, keeps in zip(values, kept, strict=True)
                if keeps.mean() >= SURELY
            ]
            if sure:
                yield min(sure)

    def probabilities(self) -> Iterator[tuple[float, bool]]:
        for goal in self.goals:
            for name, each in self.forecasts.items():
                chance = kept(each.seconds, goal.deadline_seconds)
                if chance is not None and goal.deadline_seconds is not None:
                    yield chance, self.truths[name].seconds <= goal.deadline_seconds

    def chances_of_cheapest(self) -> Iterator[tuple[float, bool]]:
        """Of each hidden set-up that could be forecast: in how many draws it is the cheapest, and if it is."""
        if len(self.forecasts) > 1:
            drawn = np.array([each.dollars for each in self.forecasts.values()])
            shares = (drawn == drawn.min(axis=0)).mean(axis=1)
            cheapest = min(self.forecasts, key=lambda name: self.truths[name].dollars)
            yield from (
                (share, name == cheapest) for share, name in zip(shares.tolist(), self.forecasts, strict=True)
            )


def questions(whole: Table, visible: Table) -> Iterator[Question]:
    """Of every job with two hidden set-ups or more; the forecasts are made of what is visible alone."""
    known = Known(visible)
    for job, cells in whole.items():
        hidden = [setup for setup in cells if setup not in visible[job]]
        if len(hidden) < 2:
            continue
        drawn = known.seconds_per_sample(job, hidden)
        yield Question(
            job,
            visible[job],
            tuple(hidden),
            {each.name: Truth.at(SAMPLES / cells[each], each.dollars_per_hour) for each in hidden},
            {setup.name: forecast_of(setup, each) for setup, each in drawn.items()},
        )


def forecast_of(setup: Setup, per_sample: Array) -> Forecast:
    seconds = SAMPLES * per_sample
    return Forecast(seconds, seconds / 3600 * setup.dollars_per_hour)


def sources() -> dict[str, Table]:
    """Each a table of its own: nothing of one is used for another."""
    found: dict[str, Table] = {}
    for name in ("Gavel, packed", "Gavel, spread"):
        found[name] = {job: cells for job, cells in gavel().items() if job.source == name}
    return {**found, "TensorFlow, DLPerf, NVIDIA": others(), "Synergy, by cores": synergy()}


def section(name: str, found: Mapping[str, list[Question]]) -> list[str]:
    """One split: a table of verdicts for each source, and one of probabilities for all."""
    lines = [f"### Where {name}", ""]
    for source, asked in found.items():
        verdicts: dict[str, list[Verdict]] = defaultdict(list)
        for question in asked:
            for chooser, verdict in question.verdicts():
                verdicts[chooser].append(verdict)
        known = [len(question.forecasts) / len(question.truths) for question in asked]
        jobs = len({question.job for question in asked})
        lines += [f"*{source}*: {jobs} jobs; {np.mean(known):.0%} of the hidden cells could be forecast.", ""]
        # The original's table holds what was measured, and that is not hidden: it never has a choice here.
        choosing = {name: each for name, each in verdicts.items() if any(one.chosen for one in each)}
        least = [more for each in asked for more in each.least_regrets()]
        lines += [
            f"By the spread of forecasts no rule that is {SURELY:.0%} sure expects less than {np.mean(least):.1%} "
            f"more than the best in the mean over {len(least)} goals (the median goal {np.median(least):.1%}).",
            "",
        ]
        lines += [verdict_table(choosing), "", worth_table([pair for each in asked for pair in each.worths()]), ""]
    every = [question for asked in found.values() for question in asked]
    for what, chances in (
        ("deadlines", [pair for question in every for pair in question.probabilities()]),
        ("being the cheapest", [pair for question in every for pair in question.chances_of_cheapest()]),
    ):
        lines += [f"Forecast chances of {what}, and what came true:", "", reliability_table(chances), ""]
    return lines


def worth_table(worths: list[tuple[float, float]]) -> str:
    """Of (what a profile is worth, what the choice cost more than the best), by the first."""
    rows = []
    for low, high in pairwise(WORTH):
        more = [regret for worth, regret in worths if low <= worth < high]
        if more:
            name = f"{low:.0%} and more" if high == np.inf else f"{low:.0%} to {high:.0%}"
            rows.append([name, len(more), f"{np.mean(more):.1%}", f"{np.median(more):.1%}"])
    return table(["a profile is worth", "goals kept, 90% sure", "more than the best: mean", "median"], rows)


def lines(seeds: int) -> list[str]:
    """Every split, in Markdown."""
    found: list[str] = []
    for name, split in SPLITS.items():
        asked = {
            source: [each for seed in range(seeds) for each in questions(cells, split(cells, seed))]
            for source, cells in sources().items()
        }
        found += section(name, asked)
    return found


def main() -> None:
    options = arguments(__doc__, seeds=(20, "splits of each kind (default 20)"))
    print(f"Prices of a GPU for an hour: {prices()}. {options.seeds} splits of each kind.\n")
    print("\n".join(lines(options.seeds)))


if __name__ == "__main__":
    main()
