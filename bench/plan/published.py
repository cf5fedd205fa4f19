"""Decisions of ``plan.recommend`` on published throughputs, beside a rule: what each costs more than the best.

A job is profiled on one GPU, by what was published of that, under a name that nobody published; no forecast knows a
published speed of its model. It is to be done on any other machine that it was published on, by deadlines from longer
to far shorter than it takes where it was profiled. Each GPU's price is that of a cloud that is drawn. The published
numbers then say what the choice takes and costs. *Profiling first* follows each plan's advice to profile on one more
machine before renting, up to twice, which tells what was published of that machine and whose price is in the bill.
What being late is taken to cost, and how sure a deadline has to be,
was chosen with all of these models in sight: no row is held out.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import product

from bench.plan.judged import SURELY, Truth, Verdict, judge, reliability_table, verdict_table
from bench.plan.tables import Cell, Job, Setup, jobs, prices
from bench.predict.published_profile import published_profile
from stash.catalog import reference
from stash.catalog.facts import Instance, Price
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.records.profile import Profile
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, RentalPlan, TrainingWork
from stash.predict.forecasting import base_of, shipped_catalog
from stash.predict.passes import Base

TODAY = date(2026, 11, 29)
DEADLINES = (1.6, 1.15, 0.8, 0.55, 0.4, 0.28, 0.2, 0.14, 0.1, 0.07, 0.05)
"""Times what the job takes where it was profiled."""
MARGIN = 1.25
"""Of the rule by memory's rate: how much sooner than the deadline it has to be done."""
SEEDS = (0, 1)
"""Of prices."""
HOURS = 24.0
"""That it takes there."""
CLOUD = "published"
PROFILING = "Stash, profiling first"
MOST_PROFILES = 2
"""Besides the first, where a plan's advice is followed."""


def profile_of(job: Job, setup: Setup, batch: int, per_second: float, alone: float) -> Profile:
    """What a profile of these GPUs would hold of such a job.

    ``per_second``: samples of all of them; ``alone``: of one of them by itself.
    """
    made = published_profile(
        job.model,
        setup.facts,
        step=1.0,
        batch=batch,
        parameters=job.parameters,
        precision="float16" if job.precision == "amp" else "float32",
        devices=setup.count,
    )
    together = batch * setup.count / per_second
    blocks = tuple(
        replace(each, seconds=each.seconds * (together if each.rung == "node" else batch / alone))
        for each in made.blocks
    )
    hosts = (made.hosts[0].model_copy(update={"instance": setup.name, "cloud": CLOUD}),)
    return made.model_copy(update={"blocks": blocks, "hosts": hosts})


def machine_of(setup: Setup) -> Instance:
    """The set-up as a catalog has it."""
    facts = setup.facts
    linked = facts.nvlink_bytes_per_second is not None
    return Instance(
        cloud=CLOUD,
        name=setup.name,
        gpu_model=facts.model,
        gpu=facts.name,
        gpu_count=setup.count,
        gpu_memory_bytes=facts.memory_bytes,
        interconnect="none" if setup.count == 1 else ("nvlink3+nvswitch" if linked else "pcie3"),
        pcie_bytes_per_second=15.75e9,
        interconnect_bytes_per_second=facts.nvlink_bytes_per_second,
        as_of=TODAY.isoformat(),
        source="published",
    )


@contextmanager
def held_out(job: Job) -> Iterator[None]:
    """Forecasts know no published speed of this model."""
    key = reference.model_key(job.model.partition(",")[0])
    kept = tuple(row for row in reference.speeds() if row.key != key)
    modules = [each for name, each in sys.modules.items() if name.startswith("stash.predict")]
    users = [each for each in modules if getattr(each, "speeds", None) is reference.speeds]
    cached = [
        each for module in modules for each in vars(module).values() if hasattr(each, "cache_clear")
    ]
    for module in users:
        module.speeds = lambda: kept  # type: ignore[attr-defined]
    for each in cached:
        each.cache_clear()
    try:
        yield
    finally:
        for module in users:
            module.speeds = reference.speeds  # type: ignore[attr-defined]
        for each in cached:
            each.cache_clear()


@dataclass(frozen=True, eq=False)
class Question:
    """One job, profiled on one GPU, to be moved to any of the set-ups."""

    job: Job
    profiled: Setup
    cells: Mapping[Setup, Cell]
    dollars: Mapping[Setup, float]
    """Of an hour."""
    base: Base

    def profile_on(self, setup: Setup) -> Base:
        """The same job and batch, profiled there."""
        cell, batch = self.cells[setup], self.cells[self.profiled].batch
        one = self.cells.get(Setup(setup.gpu, 1))
        shared = cell.per_second / setup.count
        alone = shared if one is None else max(shared, one.per_second)
        return base_of(profile_of(self.job, setup, batch, cell.per_second, alone))

    @property
    def kind(self) -> str:
        return f"{self.job.table}, {'one GPU' if all(each.count == 1 for each in self.cells) else 'any number'}"

    @property
    def work(self) -> TrainingWork:
        samples = self.cells[self.profiled].per_second * HOURS * 3600
        return TrainingWork(samples=samples, text="published")

    @cached_property
    def truths(self) -> Mapping[str, Truth]:
        samples = self.work.samples
        return {
            each.name: Truth.make(samples / cell.per_second, self.dollars[each])
            for each, cell in self.cells.items()
        }

    @cached_property
    def catalog(self) -> Catalog:
        prices = tuple(
            Price(CLOUD, each.name, None, "on-demand", dollars, TODAY.isoformat(), "published", "")
            for each, dollars in self.dollars.items()
        )
        return Catalog(shipped_catalog().gpus, tuple(map(machine_of, self.cells)), prices)

    def goals(self) -> list[Goal]:
        """Without a deadline, and with each that something keeps."""
        late = [None, *(each * HOURS * 3600 for each in DEADLINES)]
        every = [Goal(work=self.work, deadline_seconds=each) for each in late]
        return [goal for goal in every if any(truth.keeps(goal) for truth in self.truths.values())]

    def plan(self, goal: Goal, more: Sequence[Base] = ()) -> RentalPlan | None:
        """From the profile and so many ``more``; ``None`` where there is no answer."""
        bases = [self.base, *more]
        try:
            return recommend(
                bases,
                goal,
                Constraints(most_nodes=1),
                self.catalog,
                BillFacts(),
                ["published"] * len(bases),
                TODAY,
            )
        except UserError:
            return None

    def plan_after_profiling(
        self, goal: Goal, plan: RentalPlan | None
    ) -> tuple[RentalPlan | None, float]:
        """The plan once its advice to profile first is followed, and dollars that this cost."""
        setups = {each.name: each for each in self.cells}
        more: dict[str, Base] = {}
        dollars = 0.0
        while plan is not None and plan.experiment is not None and len(more) < MOST_PROFILES:
            experiment = plan.experiment
            if experiment.on in more:
                break
            more[experiment.on] = self.profile_on(setups[experiment.on])
            dollars += experiment.dollars
            plan = self.plan(goal, tuple(more.values()))
        return plan, dollars

    def choose_by_memory(self, goal: Goal) -> str | None:
        """The cheapest in time by ratios of memory's rate, GPUs taken to add up, with a margin."""
        mine, found = self.profiled.facts.memory_bytes_per_second or 1.0, []
        for each, dollars in self.dollars.items():
            seconds = HOURS * 3600 * mine / (each.facts.memory_bytes_per_second or 1.0) / each.count
            margin = 1.0 if each == self.profiled else MARGIN
            if goal.deadline_seconds is None or seconds * margin <= goal.deadline_seconds:
                found.append((seconds * dollars, each.count, each.name))
        return min(found)[2] if found else None


def questions(part: int = 1) -> Iterator[Question]:
    """Every one, or each of so many."""
    number = 0
    for job, cells in jobs().items():
        with held_out(job):
            for setup, cell in cells.items():
                if setup.count > 1:
                    continue
                base = None
                for seed, alone in product(SEEDS, (True, False)):
                    number += 1
                    among = {each: it for each, it in cells.items() if each.count == 1 or not alone}
                    if number % part or len(among) < 2:
                        continue
                    rate = cell.per_second
                    base = base or base_of(profile_of(job, setup, cell.batch, rate, rate))
                    yield Question(job, setup, among, prices(job, seed, among), base)


@dataclass(frozen=True)
class Decision:
    """One goal of one question: what each chooser's choice was worth, and what was forecast."""

    question: Question
    goal: Goal
    verdicts: Mapping[str, Verdict]
    in_time: tuple[tuple[float, bool], ...]
    """Of choices that the plan shows: how probably it is in time, and whether it is."""
    cheapest: tuple[tuple[float, bool], ...]
    """Without a deadline: how probably each is the cheapest, and whether it is."""


def decisions(part: int = 1) -> Iterator[Decision]:
    for question in questions(part):
        for goal in question.goals():
            plan = question.plan(goal)
            surely = question.plan(goal.model_copy(update={"confidence": SURELY}))
            after, spent = question.plan_after_profiling(goal, plan)
            by = {
                "Stash": _choice(plan),
                PROFILING: _choice(after),
                f"Stash, {SURELY:.0%} sure": _choice(surely),
                "memory's rate, 25 %": question.choose_by_memory(goal),
            }
            truths = question.truths
            verdicts = {name: judge(goal, truths, each) for name, each in by.items()}
            profiled = verdicts[PROFILING]
            if profiled.more is not None and profiled.best is not None:
                more = profiled.more + spent / truths[profiled.best].dollars
                verdicts[PROFILING] = replace(profiled, more=more)
            shown = () if plan is None else plan.choices
            least = min(truths, key=lambda name: truths[name].dollars)
            yield Decision(
                question,
                goal,
                verdicts,
                tuple(
                    (
                        each.on_time,
                        truths[each.rented.instance].seconds <= (goal.deadline_seconds or 0.0),
                    )
                    for each in shown
                    if each.on_time is not None
                ),
                tuple(
                    (each.best, each.rented.instance == least)
                    for each in shown
                    if each.best is not None and goal.deadline_seconds is None
                ),
            )


def _choice(plan: RentalPlan | None) -> str | None:
    chosen = None if plan is None else plan.chosen_choice
    return None if chosen is None else chosen.rented.instance


def page(part: int = 1) -> str:
    """The regret tables, and how often what was forecast came true."""
    every = list(decisions(part))
    late = [each for each in every if each.goal.deadline_seconds is not None]
    groups: dict[str, list[Decision]] = defaultdict(list)
    for each in late:
        groups[each.question.kind].append(each)
    groups["all"] = late
    groups["all, without a deadline"] = [
        each for each in every if each.goal.deadline_seconds is None
    ]
    parts = [
        " ".join((__doc__ or "").split()),
        f"{len(late)} decisions with a deadline, {len(every)} in all.",
    ]
    for name, found in groups.items():
        if found:
            by = {
                chooser: [each.verdicts[chooser] for each in found] for chooser in found[0].verdicts
            }
            parts += [f"### {name}", verdict_table(by)]
    in_time = [pair for each in late for pair in each.in_time]
    cheapest = [pair for each in every for pair in each.cheapest]
    parts += ["Forecast chances of being in time, and what came true:", reliability_table(in_time)]
    parts += [
        "Forecast chances of being the cheapest, and what came true:",
        reliability_table(cheapest),
    ]
    return "\n\n".join(parts)
