"""The course of many jobs on a cluster under one policy: by events, exact between them.

A run is a pure function of jobs, cluster, rates, policy and round. Progress between two events is rate × time,
so nothing is stepped: a job's account is settled when it stops. What the numbers mean for people, ``metrics`` knows.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stash.core.errors import UserError
from stash.schedule.allocation import JobPolicy, choose_types, order_turns, priorities
from stash.schedule.matrix import RateMatrix, RateTable, make_demand
from stash.schedule.placement import FreeGpus, GangPlace
from stash.schedule.records import Floats, JobDemand, LabCluster, QueuedJob, WholeNumbers

CAUSES = ("moves", "spreading", "fragmentation", "idle")
ROUND = 360.0
"""Seconds."""
_LIMIT = 200.0
"""Times the work that there is: a run beyond that would not end."""


@dataclass(frozen=True)
class ScheduleCourse:
    """What became of every job, in the order of the jobs that were given, and of every GPU-second by type."""

    policy: str
    jobs: tuple[QueuedJob, ...]
    submit: Floats
    finish: Floats
    served: Floats
    """GPU-seconds of each job on each type."""
    held: Floats
    """Seconds with GPUs."""
    restarts: WholeNumbers
    productive: Floats
    """GPU-seconds by type."""
    lost: dict[str, Floats]
    end: float
    objective: float
    """Of the first allocation; NaN where it has none."""
    unplaced: int = 0
    """Gangs that a round had chosen and no known placement could hold."""


def simulate(
    jobs: Sequence[QueuedJob],
    cluster: LabCluster,
    matrix: RateMatrix,
    policy: JobPolicy,
    round_seconds: float = ROUND,
) -> ScheduleCourse:
    """Run all jobs to their ends; raises UserError for a job that no type of the cluster can run."""
    return ScheduleRun(jobs, cluster, matrix, policy, round_seconds).course()


class ScheduleRun:
    """One simulation: who runs where since when, what is left, and the account of every GPU-second.

    Jobs are numbers, their places in ``jobs``.
    """

    def __init__(
        self,
        jobs: Sequence[QueuedJob],
        cluster: LabCluster,
        matrix: RateMatrix,
        policy: JobPolicy,
        round_seconds: float,
    ) -> None:
        self.jobs, self.cluster, self.policy = tuple(jobs), cluster, policy
        self.round_seconds = round_seconds
        self.table = table = RateTable(jobs, cluster, matrix)
        lacking = [job.name for number, job in enumerate(jobs) if not table.packed[number].any()]
        if lacking:
            raise UserError(f"{lacking[0]} has no rate on any type of this cluster; leave it out")
        count, types = len(jobs), len(cluster.types)
        self.submit = np.array([job.submit for job in jobs])
        self.arrivals = deque(np.argsort(self.submit, kind="stable").tolist())
        self.gpus = np.array([job.gpus for job in jobs], dtype=np.int64)
        self.left = np.array([job.steps - job.done for job in jobs])
        self.packed, self.best = table.packed, table.packed.max(axis=1)
        self.kind = np.full(count, -1, dtype=np.int64)
        self.place: list[GangPlace] = [()] * count
        self.rate, self.began, self.since = np.zeros(count), np.zeros(count), np.zeros(count)
        """Of the running: steps per second, when it got its GPUs, and from when on it makes steps."""
        self.ends, self.finish, self.held = (
            np.full(count, np.inf),
            np.full(count, np.nan),
            np.zeros(count),
        )
        """When the running will have ended, if nothing stops them; and when each has."""
        self.started = np.array([job.done > 0 for job in jobs])
        self.served, self.restarts = np.zeros((count, types)), np.zeros(count, dtype=np.int64)
        self.x, self.received, self.counted = (
            np.zeros((count, types)),
            np.zeros((count, types)),
            np.zeros(count),
        )
        """Shares, time received since they were computed, and until when that is counted."""
        self.productive = np.zeros(types)
        self.lost = {cause: np.zeros(types) for cause in CAUSES}
        self.free = FreeGpus(cluster)
        self.active: dict[int, None] = {}
        self.waiting: dict[int, None] = {}
        self.now, self.allocated_at, self.changed = 0.0, -math.inf, True
        self.lines: list[list[int]] = [[] for _ in range(types)]
        """By type the jobs that wait for its GPUs, in order; those that have got some elsewhere stay in it."""
        self.queue: list[int] = []
        self.objectives: list[float] = []
        self.unplaced: list[int] = []
        """Gangs that had their turn and found no place."""
        work = float((self.gpus * self.left / self.best).sum() / cluster.gpus)
        longest = float((self.left / self.best).max(initial=0))
        self.last = float(self.submit.max(initial=0.0)) + _LIMIT * (work + longest)

    # Time and accounts

    def advance(self, to: float) -> None:
        """Let time pass: what no job uses is idle, or fragmented where a job waits that could run there."""
        for kind, unused in enumerate(self.free.left):
            if unused and to > self.now:
                wanted = any(self.packed[job, kind] > 0 for job in self.waiting)
                self.lost["fragmentation" if wanted else "idle"][kind] += (to - self.now) * unused
        self.now = to
        if to > self.last:
            raise UserError(
                f"{self.policy.name} has not finished after {to / 3600:,.0f} h of simulated time, {_LIMIT:.0f} times "
                "the work that there is: it starves a job; choose another policy"
            )

    def start(self, job: int, kind: int, place: GangPlace, rate: float) -> None:
        """Give a waiting job its GPUs."""
        del self.waiting[job]
        self.free.allocate(place)
        pause = float(self.table.restart[job]) if self.started[job] else 0.0
        self.restarts[job] += self.started[job]
        self.started[job] = True
        self.kind[job], self.place[job], self.rate[job] = kind, place, rate
        self.began[job] = self.counted[job] = self.now
        self.since[job] = self.now + pause
        self.ends[job] = self.since[job] + float(self.left[job]) / rate

    def end(self, job: int) -> None:
        """Account for the time since it began, and take its GPUs."""
        now, began = self.now, float(self.began[job])
        working = min(float(self.since[job]), now)
        worked, rate = now - working, float(self.rate[job])
        kind, gpus = self.kind[job], float(self.gpus[job])
        at_rate = gpus * worked * rate / float(self.packed[job, kind])
        self.productive[kind] += at_rate
        self.lost["moves"][kind] += gpus * (working - began)
        self.lost["spreading"][kind] += gpus * worked - at_rate
        self.served[job, kind] += gpus * (now - began)
        self.held[job] += now - began
        self.received[job, self.kind[job]] += now - self.counted[job]
        self.left[job] -= worked * rate
        self.free.release(self.place[job])
        self.kind[job], self.place[job], self.ends[job] = -1, (), np.inf

    def stop(self, job: int) -> None:
        """Take a running job's GPUs; it waits again."""
        self.end(job)
        self.waiting[job] = None

    def left_now(self, jobs: WholeNumbers) -> Floats:
        running = self.kind[jobs] >= 0
        done = np.maximum(self.now - self.since[jobs], 0.0) * self.rate[jobs]
        return np.asarray(
            np.maximum(self.left[jobs] - np.where(running, done, 0.0), 1e-9), dtype=float
        )

    # Shares

    def demand(self, jobs: WholeNumbers) -> JobDemand:
        found = make_demand(self.jobs, self.cluster, self.table, jobs, self.now)
        return replace(found, left=self.left_now(jobs), running=self.kind[jobs])

    def allocate(self, jobs: WholeNumbers) -> None:
        """New shares for all jobs that are there; what they received is counted again."""
        self.received[jobs] = 0.0
        found = self.policy.rule(self.demand(jobs))
        self.x[jobs] = found.x
        self.objectives.append(found.objective)
        if found.order is not None:
            self.queue = jobs[found.order].tolist()
        self.allocated_at, self.changed = self.now, False

    # Rounds

    def decide(self) -> None:
        """The beginning of a round: who runs, on which type, and where."""
        jobs = np.fromiter(self.active, dtype=np.int64, count=len(self.active))
        if not len(jobs):
            return
        running = jobs[self.kind[jobs] >= 0]
        self.received[running, self.kind[running]] += self.now - self.counted[running]
        self.counted[running] = self.now
        since = self.now - self.allocated_at
        is_due = since >= self.round_seconds * (1 - 1e-9) or self.allocated_at <= 0
        if is_due and (self.changed or self.policy.by_work):
            self.allocate(jobs)
        order = self.turns(jobs)
        found = choose_types(order, self.gpus[jobs], self.cluster.counts.tolist())
        self.change_jobs(jobs, {int(jobs[at]): kind for at, kind in found.items()})
        if self.policy.fills:
            self.line_up(jobs, order)
        self.fill()

    def turns(self, jobs: WholeNumbers) -> WholeNumbers:
        """Jobs on types, as entries j·T + t, in the order in which they are to run."""
        runs = self.packed[jobs] > 0
        priority = np.where(
            runs, priorities(self.x[jobs], self.received[jobs], self.round_seconds), 0.0
        )
        allowed = runs if self.policy.fills else runs & (self.x[jobs] > 0)
        return order_turns(priority, allowed, self.packed[jobs] / self.best[jobs, None])

    def change_jobs(self, jobs: WholeNumbers, types: dict[int, int]) -> None:
        """Stop who runs elsewhere, and start the others, the largest first."""
        for job in jobs[self.kind[jobs] >= 0].tolist():
            if types.get(job) != self.kind[job]:
                self.stop(job)
        for job in sorted(
            (job for job in types if job in self.waiting), key=lambda each: -self.gpus[each]
        ):
            self.settle_in(job, types[job])

    def settle_in(self, job: int, kind: int) -> None:
        """Start it on a type where it fits at a known rate; else it waits."""
        place = self.free.find(kind, int(self.gpus[job]))
        rate = None if place is None else self.table.spread(job, kind, len(place))
        if place is None or not rate:
            self.unplaced.append(job)
        else:
            self.start(job, kind, place, rate)

    # Within a round

    def line_up(self, jobs: WholeNumbers, order: WholeNumbers) -> None:
        """For GPUs that come free within the round: the jobs that wait for each type, in order."""
        places, kinds = np.divmod(order, len(self.lines))
        turns = jobs[places]
        waits = self.kind[turns] < 0
        self.lines = [turns[waits & (kinds == kind)].tolist() for kind in range(len(self.lines))]

    def fill(self) -> None:
        """Give free GPUs to waiting jobs, in the order of the last round, then of arrival."""
        if not self.waiting or not any(self.free.left):
            return
        if not self.policy.fills:
            self.fill_queue()
            return
        for kind, line in enumerate(self.lines):
            for job in line:
                if job in self.waiting and self.gpus[job] <= self.free.left[kind]:
                    self.settle_in(job, kind)

    def fill_queue(self) -> None:
        """The queue's next jobs, each on the type that its policy would take."""
        free = self.free.left
        for job in [job for job in self.queue if job in self.waiting]:
            possible = [
                kind
                for kind, rate in enumerate(self.packed[job])
                if rate > 0 and free[kind] >= self.gpus[job]
            ]
            if possible:
                kind = max(possible, key=self.packed[job].__getitem__)
                self.settle_in(job, kind)
                if not any(free):
                    break
            elif not self.policy.backfills:
                break

    # Events

    def course(self) -> ScheduleCourse:
        """From event to event: arrivals, finishes, rounds."""
        next_round = 0.0
        while self.active or self.arrivals:
            if not self.active:  # an empty cluster decides as soon as a job comes
                next_round = self.arrival_time()
            self.advance(
                max(min(float(self.ends.min()), self.arrival_time(), next_round), self.now)
            )
            while self.ends.min() <= self.now:
                job = int(self.ends.argmin())
                self.end(job)
                self.finish[job], self.left[job] = self.now, 0.0
                del self.active[job]
                self.changed = True
            self.arrive()
            if self.now >= next_round:
                self.decide()
                next_round = (
                    math.floor(self.now / self.round_seconds + 1e-9) + 1
                ) * self.round_seconds
            else:
                self.fill()
        return ScheduleCourse(
            policy=self.policy.name,
            jobs=self.jobs,
            submit=self.submit,
            finish=self.finish,
            served=self.served,
            held=self.held,
            restarts=self.restarts,
            productive=self.productive,
            lost=self.lost,
            end=self.now,
            objective=self.objectives[0] if self.objectives else math.nan,
            unplaced=len(self.unplaced),
        )

    def arrival_time(self) -> float:
        return float(self.submit[self.arrivals[0]]) if self.arrivals else math.inf

    def arrive(self) -> None:
        while self.arrival_time() <= self.now:
            job = self.arrivals.popleft()
            self.active[job] = self.waiting[job] = None
            self.changed = True
            self.queue.append(job)
            for kind in np.flatnonzero(self.packed[job] > 0):
                self.lines[kind].append(job)
