"""Decisions of ``plan.recommend`` on published throughputs, beside rules: what each costs more than the best.

    python -m bench.plan.published                 every question
    python -m bench.plan.published --part 10       every tenth
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np

from bench.machine import arguments
from bench.plan.judged import Truth, Verdict, judge, reliability_table, verdict_table
from bench.plan.tables import Cell, Job, Setup, jobs
from stash.catalog import reference
from stash.catalog.facts import Instance, Price
from stash.catalog.offers import Catalog
from stash.core.errors import UserError
from stash.core.records.host import Gpu, Host
from stash.core.records.profile import Block, Gradient, Memory, Profile, Rank, Settings, Workload
from stash.plan.bill import BillFacts
from stash.plan.recommend import recommend
from stash.plan.records import Constraints, Goal, RentalPlan, TrainingWork
from stash.predict.forecasting import base_of, shipped_catalog
from stash.predict.passes import Base

TODAY = date(2026, 11, 29)
DEADLINES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
"""Times what the job takes where it was profiled."""
HOURS = 24.0
"""That it takes there."""
CLOUD = "published"


def profile_of(job: Job, setup: Setup, cell: Cell) -> Profile:
    """What a profile of one GPU would hold of such a job: its step, its batch, and when 50 equal gradients are ready.

    Under a name that nobody published.
    """
    step = cell.batch / cell.per_second
    gpu = Gpu(index=0, name=setup.gpu, memory_bytes=int(setup.facts.memory_bytes or 0))
    ready = np.linspace(0.35, 0.97, 50) * step
    gradients = tuple(
        Gradient(name=f"layer{number}", bytes=int(job.parameters * 4 / 50), ready_seconds=float(seconds))
        for number, seconds in enumerate(ready)
    )
    blocks = tuple(
        Block(round=number, rung="solo", rank=0, steps=10, seconds=10 * step * (1 + wiggle), samples=10 * cell.batch)
        for number, wiggle in enumerate((-0.002, 0.002, -0.001, 0.001, 0.0, 0.0))
    )
    return Profile(
        stash_version="0",
        created=f"{TODAY.isoformat()}T00:00:00+00:00",
        workload=Workload(
            command=("train.py",), name=f"unpublished {job.model}", batch=cell.batch, gradients=gradients,
            parameters=int(job.parameters), parameter_bytes=int(4 * job.parameters),
            precision="float16" if job.precision == "amp" else "float32",
        ),
        hosts=(Host(hostname="here", gpus=(gpu,)),),
        ranks=(Rank(rank=0, node=0, local_rank=0, device="cuda:0"),),
        software={},
        settings=Settings(precision=0.02, budget_seconds=60.0, rungs=("solo",), isolated=False, why="published"),
        blocks=blocks,
        memory=(Memory(rank=0, allocated_bytes=10**9),),
        ended="precision",
        elapsed_seconds=60.0,
    )  # fmt: skip


def machine_of(setup: Setup) -> Instance:
    """The set-up as a catalog has it."""
    facts = setup.facts
    linked = facts.nvlink_bytes_per_second is not None
    return Instance(
        cloud=CLOUD, name=setup.name, gpu_model=facts.model, gpu=facts.name, gpu_count=setup.count,
        gpu_memory_bytes=facts.memory_bytes, interconnect="none" if setup.count == 1 else
        ("nvlink3+nvswitch" if linked else "pcie3"), pcie_bytes_per_second=15.75e9,
        interconnect_bytes_per_second=facts.nvlink_bytes_per_second, as_of=TODAY.isoformat(), source="published",
    )  # fmt: skip


@contextmanager
def held_out(job: Job) -> Iterator[None]:
    """Forecasts know no published speed of this model."""
    key = reference.model_key(job.model.partition(",")[0])
    kept = tuple(row for row in reference.speeds() if row.key != key)
    modules = [each for name, each in sys.modules.items() if name.startswith("stash.predict")]
    users = [each for each in modules if getattr(each, "speeds", None) is reference.speeds]
    cached = [each for module in modules for each in vars(module).values() if hasattr(each, "cache_clear")]
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
    """One job, profiled on one GPU, to be moved to any of the others."""

    job: Job
    profiled: Setup
    cells: Mapping[Setup, Cell]
    base: Base

    @property
    def work(self) -> TrainingWork:
        samples = self.cells[self.profiled].per_second * HOURS * 3600
        return TrainingWork(samples=samples, text="published")

    @cached_property
    def truths(self) -> Mapping[str, Truth]:
        return {
            each.name: Truth.at(self.work.samples / cell.per_second, each.dollars_per_hour)
            for each, cell in self.cells.items()
        }

    @cached_property
    def catalog(self) -> Catalog:
        prices = tuple(
            Price(CLOUD, each.name, None, "on-demand", each.dollars_per_hour, TODAY.isoformat(), "published", "")
            for each in self.cells
        )
        return Catalog(shipped_catalog().gpus, tuple(map(machine_of, self.cells)), prices)

    def goals(self) -> list[Goal]:
        late = [None, *(each * HOURS * 3600 for each in DEADLINES)]
        every = [Goal(work=self.work, deadline_seconds=each) for each in late]
        return [goal for goal in every if any(truth.keeps(goal) for truth in self.truths.values())]

    def plan(self, goal: Goal) -> RentalPlan:
        return recommend([self.base], goal, Constraints(most_nodes=1), self.catalog, BillFacts(), ["published"], TODAY)

    def by_memory(self, goal: Goal, margin: float = 1.25) -> str | None:
        """The cheapest in time by ratios of memory's rate, GPUs taken to add up, with a margin."""
        mine = self.profiled.facts.memory_bytes_per_second or 1.0
        found = []
        for each in self.cells:
            seconds = HOURS * 3600 * mine / (each.facts.memory_bytes_per_second or 1.0) / each.count
            if goal.deadline_seconds is None or seconds * margin <= goal.deadline_seconds:
                found.append((seconds * each.dollars_per_hour, each.count, each.name))
        return min(found)[2] if found else None


def questions(part: int = 1) -> Iterator[Question]:
    number = 0
    for job, cells in jobs().items():
        with held_out(job):
            for setup, cell in cells.items():
                if setup.count > 1:
                    continue
                number += 1
                if number % part == 0:
                    base = base_of(profile_of(job, setup, cell))
                    yield Question(job, setup, cells, base)
