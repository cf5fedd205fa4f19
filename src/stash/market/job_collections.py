"""Many jobs at once: who trains where, so that all of it costs least, ends soonest, or does most for a dollar.

The study's last section (after Gavel, Narayanan et al., OSDI 2020) as a linear program at the moment of a decision.
x[job, offer] is the share of the time from now on that a job spends on an offer:

    Σ_o x[j, o] ≤ 1,   Σ_j k_j·x[j, o] ≤ quota[o],   Σ_o q[j, o]·x[j, o] ≥ samples_j / T_j   with a deadline T_j

*cost* makes Σ T_j·k_j·p_o·x least, T_j the deadline, or the horizon of jobs without one. *makespan* makes λ greatest
with Σ q·x ≥ λ·samples. *work-per-dollar* makes Σ (q/samples)·x over Σ k·p·x greatest, which Charnes and Cooper (1962)
turn into a linear program. A budget bounds what its job costs. Machines are whole: the rounding gives each job one
offer to the end, by a MILP, and the gap between the two is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from stash.core.errors import UserError
from stash.core.formatting import listed, span
from stash.core.records.base import PlainName, Record
from stash.core.units import parse_count, parse_dollars, parse_seconds
from stash.core.user_files import load_rows, quantity
from stash.market.market_trace import HOUR
from stash.predict.draws import Array

CollectionGoal = Literal["cost", "makespan", "work-per-dollar"]
GOALS: tuple[CollectionGoal, ...] = ("cost", "makespan", "work-per-dollar")
HORIZON = 30 * 24 * HOUR
"""Seconds that a job without a deadline may take at least; where it needs more, as long as on its slowest type."""


def _empty(given: Any) -> Any:
    return None if isinstance(given, str) and not given.strip() else given


class _JobRow(Record):
    """A line of jobs.csv: a job on one instance."""

    job: Annotated[PlainName, Field(min_length=1, examples=["resnet50"])]
    instance: Annotated[PlainName, Field(min_length=1, examples=["p3.2xlarge"])]
    samples_per_second: Annotated[float, Field(gt=0, le=1e12, examples=["360"])]
    samples: Annotated[float, quantity(parse_count, bare=True), Field(gt=0, le=1e18, examples=["115M"])]
    machines: Annotated[int, Field(ge=1, le=1024, examples=["1"])]
    deadline: Annotated[
        Annotated[float, Field(gt=0, le=1e9)] | None, quantity(parse_seconds), BeforeValidator(_empty),
        Field(examples=["4d"]),
    ]  # fmt: skip
    budget: Annotated[
        Annotated[float, Field(gt=0, le=1e12)] | None, quantity(parse_dollars), BeforeValidator(_empty),
        Field(examples=["$300"]),
    ]  # fmt: skip


@dataclass(frozen=True)
class WaitingJob:
    """One of the jobs; seconds and dollars."""

    name: str
    samples: float
    rates: Mapping[str, float]
    """Samples a second of all its machines, by instance."""
    machines: int = 1
    deadline: float | None = None
    budget: float | None = None


@dataclass(frozen=True)
class RentedType:
    """An instance with its price now, and how many of it may be rented."""

    instance: str
    dollars_per_hour: float
    quota: int
    where: str = "as given"
    """What is asked for it, and where."""


@dataclass(frozen=True, eq=False)
class Assignment:
    """Who trains where."""

    goal: CollectionGoal
    shares: Array
    """The linear program's x: ``[job, offer]``."""
    bound: float
    """Dollars, seconds or shares of work a dollar: no assignment is better."""
    chosen: tuple[int, ...]
    """One offer for each job, to its end."""
    value: float
    """What that comes to."""
    dollars: float
    seconds: float
    """Until the last is done."""

    @property
    def gap(self) -> float:
        """Of the whole machines to the bound, as a fraction."""
        return abs(self.value / self.bound - 1) if self.bound else 0.0


def read_jobs(path: Path) -> list[WaitingJob]:
    """jobs.csv, a line for each job and instance; raises UserError with the line."""
    found: dict[str, WaitingJob] = {}
    for line, row in load_rows(path, _JobRow, "the jobs", "docs/market.md shows such a file"):
        facts = (row.samples, row.machines, row.deadline, row.budget)
        known = found.get(row.job)
        if known is None:
            found[row.job] = WaitingJob(row.job, row.samples, {row.instance: row.samples_per_second}, *facts[1:])
        elif (known.samples, known.machines, known.deadline, known.budget) != facts:
            raise UserError(f"{path}:{line}: {row.job} has other samples, machines, deadline or budget than before")
        elif row.instance in known.rates:
            raise UserError(f"{path}:{line}: {row.job} has two rates on {row.instance}; keep one")
        else:
            rates = {**known.rates, row.instance: row.samples_per_second}
            found[row.job] = WaitingJob(row.job, row.samples, rates, *facts[1:])
    return list(found.values())


def assign(jobs: Sequence[WaitingJob], types: Sequence[RentedType], goal: CollectionGoal = "cost") -> Assignment:
    """The best shares, and the best whole machines; raises UserError where limits cannot all hold."""
    if not jobs or not types:
        raise UserError("there is nothing to assign: give jobs, and types with a price and a quota")
    rates = np.array([[job.rates.get(each.instance, 0.0) for each in types] for job in jobs])
    lost = next((job.name for job, row in zip(jobs, rates, strict=True) if not row.any()), None)
    if lost is not None:
        raise UserError(
            f"{lost} has no rate on any of {listed([each.instance for each in types])}; add one to its lines"
        )
    problem = _Problem(jobs, types, rates)
    shares, bound = problem.relaxed(goal)
    chosen = problem.whole(goal)
    dollars = float(sum(problem.costs[row, offer] for row, offer in enumerate(chosen)))
    seconds = float(max(problem.times[row, offer] for row, offer in enumerate(chosen)))
    value = dollars if goal == "cost" else seconds
    if goal == "work-per-dollar":
        picked = np.arange(len(jobs)), np.array(chosen)
        value = float((rates / problem.samples[:, None])[picked].sum() / problem.hourly[picked].sum() * HOUR)
    return Assignment(goal, shares, bound, tuple(chosen), value, dollars, seconds)


class _Problem:
    """Jobs times types, flat: variable j·types + o."""

    def __init__(self, jobs: Sequence[WaitingJob], types: Sequence[RentedType], rates: Array) -> None:
        self.jobs, self.types, self.rates = jobs, types, rates
        self.samples = np.array([job.samples for job in jobs])
        self.machines = np.array([job.machines for job in jobs])
        self.prices = np.array([each.dollars_per_hour for each in types])
        self.hourly = self.machines[:, None] * self.prices[None, :]
        with np.errstate(divide="ignore"):
            self.times = np.where(rates > 0, self.samples[:, None] / rates, np.inf)
        slowest = np.where(rates > 0, self.times, HORIZON).max(axis=1, initial=HORIZON)
        self.limits = np.array([float(longest) if job.deadline is None else job.deadline
                                for job, longest in zip(jobs, slowest, strict=True)])  # fmt: skip
        self.costs = self.times * self.hourly / HOUR

    def _common(self, extra: int) -> tuple[list[Array], list[float]]:
        """Rows and limits of Σ_o x ≤ 1 and of quotas, with room for ``extra`` variables behind."""
        count, width = self.rates.shape
        shares = np.kron(np.eye(count), np.ones(width))
        quotas = np.kron(self.machines, np.eye(width))
        rows = np.pad(np.vstack([shares, quotas]), ((0, 0), (0, extra)))
        return list(rows), [1.0] * count + [float(each.quota) for each in self.types]

    def _row(self, j: int, values: Array, extra: int) -> Array:
        count, width = self.rates.shape
        row = np.zeros(count * width + extra)
        row[j * width : (j + 1) * width] = values
        return row

    def relaxed(self, goal: CollectionGoal) -> tuple[Array, float]:
        """(shares, bound); raises UserError where there are none."""
        count, width = self.rates.shape
        size = count * width
        extra = 0 if goal == "cost" else 1
        rows, limits = self._common(extra)
        for j, job in enumerate(self.jobs):
            if goal == "cost" or job.deadline is not None:
                rows.append(self._row(j, -self.rates[j], extra))
                limits.append(-self.samples[j] / self.limits[j])
            if goal == "makespan":
                row = self._row(j, -self.rates[j], 1)
                row[-1] = self.samples[j]
                rows.append(row)
                limits.append(0.0)
            if job.budget is not None and goal == "work-per-dollar":  # dollars of all its samples, at this pace
                rows.append(self._row(j, self.hourly[j] / HOUR * self.samples[j] - job.budget * self.rates[j], extra))
                limits.append(0.0)
            elif job.budget is not None:
                row = self._row(j, self.hourly[j] / HOUR, extra)
                row[-1] -= job.budget if goal == "makespan" else 0.0
                rows.append(row)
                limits.append(0.0 if goal == "makespan" else job.budget / self.limits[j])
        aim = np.concatenate([(self.hourly * self.limits[:, None] / HOUR).ravel(), np.zeros(extra)])
        upper = [1.0] * size + [None] * extra
        equal: dict[str, Any] = {}
        if goal == "makespan":
            aim = np.concatenate([np.zeros(size), [-1.0]])
        if goal == "work-per-dollar":
            aim = np.concatenate([-(self.rates / self.samples[:, None]).ravel(), [0.0]])
            for row, limit in zip(rows, limits, strict=True):
                row[-1] = -limit
            limits = [0.0] * len(rows)
            upper = [None] * (size + 1)
            equal = {"A_eq": [np.concatenate([(self.hourly / HOUR).ravel(), [0.0]])], "b_eq": [1.0]}
        found = linprog(aim, np.array(rows), np.array(limits), **equal, bounds=[(0.0, each) for each in upper])
        if found.x is None or not found.success:
            raise UserError(self._impossible())
        shares = found.x[:size].reshape(count, width)
        if goal == "cost":
            return shares, float(found.fun)
        if goal == "makespan":
            if found.x[-1] <= 0:
                raise UserError(self._impossible())
            return shares, 1.0 / float(found.x[-1])
        scale = float(found.x[-1])
        return (shares / scale if scale > 0 else shares), -float(found.fun)

    def whole(self, goal: CollectionGoal) -> list[int]:
        """One offer for each job; raises UserError where none is possible."""
        count, width = self.rates.shape
        size = count * width
        able = (self.times <= self.limits[:, None]) & (self.rates > 0)
        for j, job in enumerate(self.jobs):
            if job.budget is not None:
                able[j] &= self.costs[j] <= job.budget
        rows, limits = self._common(1)
        lower = [1.0] * count + [-np.inf] * width
        if goal == "makespan":
            for j in range(count):
                row = self._row(j, np.where(able[j], self.times[j], 0.0), 1)
                row[-1] = -1.0
                rows.append(row)
                limits.append(0.0)
                lower.append(-np.inf)
        bounds = Bounds(0, np.concatenate([able.ravel().astype(float), [np.inf if goal == "makespan" else 0.0]]))
        constraints = LinearConstraint(np.array(rows), np.array(lower), np.array(limits))

        def least(aim: Array, last: float = 0.0) -> list[int]:
            found = milp(
                np.append(np.where(able, aim, 0.0), last), bounds=bounds, constraints=constraints,
                integrality=np.append(np.ones(size), 0.0), options={"time_limit": 10.0},
            )  # fmt: skip
            if found.x is None:
                raise UserError(f"{self._impossible()} with one type for each job to its end")
            return [int(each) for each in found.x[:size].reshape(count, width).argmax(axis=1)]

        if goal == "makespan":
            return least(np.zeros_like(self.costs), 1.0)
        if goal == "cost":
            return least(self.costs)
        # A ratio is greatest where work − ratio · dollars has no choice above 0 (Dinkelbach, 1967).
        work, dollars, ratio = self.rates / self.samples[:, None], self.hourly / HOUR, 0.0
        while True:
            aim = ratio * dollars - work
            chosen = least(aim / (np.abs(aim).max() or 1.0))
            picked = np.arange(count), np.array(chosen)
            before, ratio = ratio, float(work[picked].sum() / dollars[picked].sum())
            if ratio <= before * (1 + 1e-9):
                return chosen

    def _impossible(self) -> str:
        fastest = self.times.min(axis=1)
        late = [
            f"{job.name} takes {span(float(seconds))} at least"
            for job, seconds in zip(self.jobs, fastest, strict=True)
            if job.deadline is not None and seconds > job.deadline
        ]
        return "no assignment keeps all deadlines, budgets and quotas" + (f" ({listed(late)})" if late else "")


def types_of(quotas: Mapping[str, int], prices: Mapping[str, tuple[float, str]]) -> list[RentedType]:
    """What may be rented, at a price and whose that is; raises UserError for a type without one."""
    missing = [name for name in quotas if name not in prices]
    if missing:
        raise UserError(f"--quota {missing[0]}: no price of it is known now; there are {listed(sorted(prices), 8)}")
    return [RentedType(name, prices[name][0], quota, prices[name][1]) for name, quota in quotas.items()]
