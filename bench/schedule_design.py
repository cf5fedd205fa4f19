"""Which schedule of blocks answers soonest: simulated jobs on a recorded machine, real scheduler and estimators.

A job is the seconds of work that a step takes under each rung on an even machine. The machine works faster or slower
from moment to moment, as ``bench.noise.steps`` saw one do; where a profile begins on it is drawn. Blocks come in the
order of ``round_of_visits`` and in the sizes of a ``Plan``; between them pass the seconds that agreement and emptying
queues take. For the plan that is made today and for others the table tells how long it takes until every stall is
known to ±2 % of the step, how close it is after 30 s, how far from the truth, and how often the intervals hold it.
A job that logs every fifth step shows why rounds differ in length.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from bench.machine import arguments
from bench.noise.steps import TWO_RANKS
from bench.recorded import numbers
from bench.table import show
from stash.core import rounds as stats
from stash.core.intervals import Interval
from stash.core.ladder import Visit, round_of_visits
from stash.measure.agent.runner.block_plan import BlockSize, Plan, StepPace, plan

LINE = 0.016
"""Seconds that a line of it took, as its head tells: four steps."""
LADDER = ("solo", "crowd", "cluster", "warm", "cold")
RANKS = 2
PRECISION = 0.02
PROFILES = 40
BUDGET = 90.0
QUEUE = 4.0
"""Batches that two workers make ahead."""
EARLY = 30.0
LIMIT = 120.0
"""Seconds after which a profile is given up."""


@dataclass(frozen=True)
class Job:
    """Seconds of work of a step under each rung, and what lies between blocks."""

    name: str
    solo: float
    crowd: float
    cluster: float
    warm: float
    cold: float
    workers: int = 2
    every: int = 0
    """After so many steps the script logs, which takes ``logging`` seconds; 0 for never."""
    logging: float = 0.0
    busy: float = 0.3
    """Share of the workers' time in which they make batches."""
    agreement: float = 0.003
    """Seconds that a visit takes besides its steps."""
    emptying: float = 0.15
    """Seconds that a data block takes besides, for queues to be emptied and files evicted."""

    def work(self, name: str) -> float:
        return float(getattr(self, name))


JOBS = (
    Job("resnet18", 0.210, 0.222, 0.270, 0.285, 0.295),
    Job("squeezenet1_0", 0.140, 0.146, 0.160, 0.180, 0.185),
    Job("m5", 0.045, 0.046, 0.049, 0.055, 0.058),
    Job("one that logs", 0.140, 0.146, 0.160, 0.180, 0.185, every=5, logging=0.05),
    Job("dlrm", 0.008, 0.0085, 0.014, 0.016, 0.016, emptying=0.05),
)


class Machine:
    """A recorded machine, endless: what work is done between two moments, by each of its processes."""

    def __init__(self, seconds: np.ndarray) -> None:
        self.moments = np.concatenate([np.zeros((len(seconds), 1)), np.cumsum(seconds, axis=1)], axis=1)
        self.counts = np.arange(self.moments.shape[1], dtype=np.float64)
        self.unit = float(seconds.mean())
        self.length = float(self.moments[:, -1].min())

    def end(self, process: int, begin: float, work: float) -> float:
        """When ``work`` that begins at ``begin`` is done; the record is played again and again."""
        moments = self.moments[process]
        laps, offset = divmod(begin, moments[-1])
        done = float(np.interp(offset, moments, self.counts)) + work / self.unit
        more, rest = divmod(done, len(moments) - 1)
        return float((laps + more) * moments[-1] + np.interp(rest, self.counts, moments))


def widest(stalls: list[Interval]) -> float:
    """The largest half-width in seconds; infinite if any interval is unknown."""
    return max(math.inf if stall.half_width is None else stall.half_width for stall in stalls)


@dataclass
class Run:
    """One simulated profile: complete rounds ``[round, rung]`` in seconds, when each ended, and seconds measured."""

    matrix: list[list[float]]
    ends: list[float]
    measured: float = 0.0
    steps: int = 0

    def until(self, seconds: float) -> np.ndarray:
        return np.array([row for row, end in zip(self.matrix, self.ends, strict=True) if end <= seconds])

    def precise_after(self) -> float:
        """Seconds until every interval is narrow enough, or infinity."""
        for count in range(3, len(self.ends) + 1, max(1, len(self.ends) // 60)):
            *stalls, step = stats.whole_estimate(np.array(self.matrix[:count]))
            if widest(stalls) <= PRECISION * step.value:
                return self.ends[count - 1]
        return math.inf


@dataclass(frozen=True)
class Design:
    """A plan to judge; ``staggered``: its rounds differ in length."""

    name: str
    sizes: Plan
    staggered: bool = True


def simulate(job: Job, design: Design, machine: Machine, begin: float) -> Run:
    """Run rounds from ``begin`` on for ``LIMIT`` seconds."""
    run = Run([], [])
    now = begin
    number = 0
    while now - begin < LIMIT:
        spent: dict[str, list[float]] = {name: [] for name in LADDER}
        for visit in round_of_visits(LADDER, number, RANKS):
            now = _visit(job, design, machine, visit, now, spent, run)
        run.matrix.append([float(np.mean(spent[name])) for name in LADDER])
        run.ends.append(now - begin)
        run.measured += sum(map(sum, spent.values()))
        number += 1
    return run


def _visit(
    job: Job, design: Design, machine: Machine, visit: Visit, now: float, spent: dict[str, list[float]], run: Run
) -> float:
    size = design.sizes.size(visit)
    settle = size.settle + (visit.lead_in if design.staggered else 0)
    now += job.agreement + (job.emptying if visit.reads_data else 0.0)
    for index in range(settle + size.steps):
        seconds = _step(job, machine, visit, now)
        run.steps += visit.active != "followers"
        if job.every and run.steps % job.every == 0:
            seconds += job.logging
        if visit.measured and index >= settle:
            spent[visit.rung].append(seconds)
        now += seconds
    return now


def _step(job: Job, machine: Machine, visit: Visit, now: float) -> float:
    """Seconds of a step: of the rank that takes it, of both on average where neither waits, else of the slower."""
    if visit.active == "leader":
        return machine.end(0, now, job.work(visit.rung)) - now
    if visit.active == "followers":
        return machine.end(1, now, job.solo) - now
    seconds = [machine.end(process, now, job.work(visit.rung)) - now for process in range(RANKS)]
    return sum(seconds) / RANKS if visit.scope == "self" else max(seconds)


def designs(job: Job) -> Iterator[Design]:
    """The plan that is made, and others to judge it by."""
    pace = StepPace(job.warm, job.workers, agreement_seconds=job.agreement)
    first = plan(round_of_visits(LADDER, 0, RANKS), pace, BUDGET)
    planned = first.settling(first.settle_until_full(job.busy, QUEUE))
    replay, data = planned.replay, planned.data
    long = round(0.75 / job.warm)
    bursts = max(1, round(long / job.workers)) * job.workers
    yield Design("the plan", planned)
    if job.every:
        yield Design("rounds of equal length", planned, staggered=False)
        return
    yield Design("long blocks", replace(planned, replay=BlockSize(0, long), data=BlockSize(data.settle, bursts)))
    yield Design("that settle", replace(planned, replay=BlockSize(1, long), data=BlockSize(job.workers, bursts)))
    yield Design("data twice as long", replace(planned, data=replace(data, steps=2 * data.steps)))
    yield Design("replays twice as long", replace(planned, replay=replace(replay, steps=2 * replay.steps)))
    yield Design("replays half as long", replace(planned, replay=replace(replay, steps=-(-replay.steps // 2))))


def rows(job: Job, machine: Machine) -> list[list[str]]:
    """What each design reaches on a job; the truth is the mean of all that was simulated without logging."""
    judged = list(designs(job))
    begins = np.random.default_rng(1).uniform(0, machine.length, PROFILES)
    runs = [[simulate(job, design, machine, begin) for begin in begins] for design in judged]
    quiet = replace(job, every=0)
    known = (
        [simulate(quiet, judged[0], machine, begin) for begin in begins] if job.every else chain.from_iterable(runs)
    )
    truth = np.mean([np.diff(np.mean(run.matrix, axis=0), prepend=0.0) for run in known], axis=0)
    return [row(job, design, each, truth) for design, each in zip(judged, runs, strict=True)]


def row(job: Job, design: Design, runs: list[Run], truth: np.ndarray) -> list[str]:
    step, after = truth.sum(), float(np.median([run.precise_after() for run in runs]))
    early = [stats.estimate(run.until(EARLY)) for run in runs if len(run.until(EARLY)) > 1]
    stalls = [list(zip(found[1:], truth[1:], strict=True)) for found in early]
    errors = [max(abs(stall.value - true) for stall, true in each) for each in stalls]
    held = [(stall.low or 0.0) <= true <= (stall.high or 0.0) for each in stalls for stall, true in each]
    return [
        job.name,
        design.name,
        *(f"{size.settle} + {size.steps}" for size in (design.sizes.replay, design.sizes.data)),
        f"{after:.0f} s" if math.isfinite(after) else f"over {LIMIT:.0f} s",
        f"{np.median([widest(found) for found in early]) / step:.1%}",
        f"{np.mean(errors) / step:.2%}",
        f"{np.mean(held):.0%}",
        f"{np.mean([run.measured / run.ends[-1] for run in runs]):.0%}",
        f"{np.median([len(run.until(EARLY)) for run in runs]):.0f}",
    ]


def main() -> None:
    args = arguments(__doc__, noise=(TWO_RANKS, ""))
    machine = Machine(LINE * numbers(args.noise).T / 1000)
    heads = (
        "job",
        "",
        "replay block",
        "data block",
        "±2 % after",
        "width at 30 s",
        "worst error",
        "hold",
        "measured",
    )
    show((*heads, "rounds at 30 s"), (line for job in JOBS for line in rows(job, machine)))


if __name__ == "__main__":
    main()
