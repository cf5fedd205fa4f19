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
from stash.schedule.records import Floats, LabCluster, QueuedJob, WholeNumbers

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
        self.jobs = tuple(jobs)
        self.cluster = cluster
        self.policy = policy
        self.round_seconds = round_seconds
        self.table = RateTable(jobs, cluster, matrix)
        self.packed = self.table.packed
        for job, rates in zip(jobs, self.packed, strict=True):
            if not rates.any():
                raise UserError(f"{job.name} has no rate on any type of this cluster; leave it out")
        count, types = self.packed.shape
        self.submit = np.array([job.submit for job in jobs])
        self.arrivals = deque(np.argsort(self.submit, kind="stable").tolist())
        self.gpus = np.array([job.gpus for job in jobs], dtype=np.int64)
        self.left = np.array([job.steps - job.done for job in jobs])
        self.starts = np.array([job.done > 0 for job in jobs], dtype=np.int64)
        """How often each got GPUs, one more for those that had some before."""
        # Of the running: type, nodes, steps per second, when it got its GPUs, from when on it makes steps, and when
        # it will have ended if nothing stops it.
        self.kind = np.full(count, -1, dtype=np.int64)
        self.place: list[GangPlace] = [()] * count
        self.rate, self.began, self.since = np.zeros((3, count))
        self.ends = np.full(count, np.inf)
        self.finish = np.full(count, np.nan)
        # Shares, time received since they were computed, and until when that is counted.
        self.x, self.received = np.zeros((2, count, types))
        self.counted = np.zeros(count)
        self.served = np.zeros((count, types))
        self.productive = np.zeros(types)
        self.lost = {cause: np.zeros(types) for cause in CAUSES}
        self.free = FreeGpus(cluster)
        self.active: dict[int, None] = {}
        self.waiting: dict[int, None] = {}
        self.now = 0.0
        self.allocated_at = -math.inf
        self.changed = True
        self.lines: list[list[int]] = [[] for _ in range(types)]
        """By type the jobs that wait for its GPUs, in order; those that have got some elsewhere stay in it."""
        self.queue: list[int] = []
        self.objectives: list[float] = []
        self.unplaced = 0
        """Times that a gang had its turn and found no place."""
        alone = self.left / self.packed.max(axis=1)
        work = float((self.gpus * alone).sum() / cluster.gpus + alone.max(initial=0))
        self.last = float(self.submit.max(initial=0.0)) + _LIMIT * work

    # Time and accounts

    def advance(self, to: float) -> None:
        """Let time pass: what no job uses is idle, or fragmented where a job waits that could run there."""
        for kind, unused in enumerate(self.free.left):
            wanted = any(self.packed[job, kind] > 0 for job in self.waiting)
            self.lost["fragmentation" if wanted else "idle"][kind] += (to - self.now) * unused
        self.now = to
        if to > self.last:
            raise UserError(
                f"{self.policy.name} has not finished after {to / 3600:,.0f} h of simulated time, {_LIMIT:.0f} times "
                "the work that there is: it starves a job; choose another policy"
            )

    def start(self, job: int, kind: int) -> None:
        """Give a waiting job its GPUs where it fits at a known rate; else it waits."""
        place = self.free.find(kind, int(self.gpus[job]))
        rate = None if place is None else self.table.spread(job, kind, len(place))
        if place is None or not rate:
            self.unplaced += 1
            return
        del self.waiting[job]
        self.free.allocate(place)
        pause = float(self.table.restart[job]) if self.starts[job] else 0.0
        self.starts[job] += 1
        self.kind[job] = kind
        self.place[job] = place
        self.rate[job] = rate
        self.began[job] = self.counted[job] = self.now
        self.since[job] = self.now + pause
        self.ends[job] = self.since[job] + float(self.left[job]) / rate

    def stop(self, job: int) -> None:
        """Account for the time since it began, and take its GPUs."""
        now = self.now
        began = float(self.began[job])
        working = min(float(self.since[job]), now)
        worked = now - working
        rate = float(self.rate[job])
        kind = self.kind[job]
        gpus = float(self.gpus[job])
        at_rate = gpus * worked * rate / float(self.packed[job, kind])
        self.productive[kind] += at_rate
        self.lost["moves"][kind] += gpus * (working - began)
        self.lost["spreading"][kind] += gpus * worked - at_rate
        self.served[job, kind] += gpus * (now - began)
        self.received[job, kind] += now - self.counted[job]
        self.left[job] -= worked * rate
        self.free.release(self.place[job])
        self.kind[job] = -1
        self.place[job] = ()
        self.ends[job] = np.inf

    # Rounds

    def allocate(self, jobs: WholeNumbers) -> None:
        """New shares for all jobs that are there; what they received is counted again."""
        self.received[jobs] = 0.0
        done = np.maximum(self.now - self.since[jobs], 0.0) * self.rate[jobs]
        left = self.left[jobs] - np.where(self.kind[jobs] >= 0, done, 0.0)
        demand = make_demand(self.jobs, self.cluster, self.table, jobs, self.now)
        running = self.kind[jobs]
        found = self.policy.rule(replace(demand, left=np.maximum(left, 1e-9), running=running))
        self.x[jobs] = found.x
        self.objectives.append(found.objective)
        if found.order is not None:
            self.queue = jobs[found.order].tolist()
        self.allocated_at = self.now
        self.changed = False

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
        # Jobs on types, as entries j·T + t, in the order in which they are to run.
        packed = self.packed[jobs]
        x = self.x[jobs]
        priority = priorities(x, self.received[jobs], self.round_seconds)
        allowed = packed > 0 if self.policy.fills else (packed > 0) & (x > 0)
        order = order_turns(priority, allowed, packed / packed.max(axis=1, keepdims=True))
        chosen = choose_types(order, self.gpus[jobs], self.cluster.counts.tolist())
        types = {int(jobs[at]): kind for at, kind in chosen.items()}
        for job in running.tolist():
            if types.get(job) != self.kind[job]:
                self.stop(job)
                self.waiting[job] = None
        due = [job for job in types if job in self.waiting]
        for job in sorted(due, key=lambda each: -self.gpus[each]):  # the largest first
            self.start(job, types[job])
        # For GPUs that come free within the round: the jobs that wait for each type, in order.
        places, kinds = np.divmod(order, len(self.lines))
        turns = jobs[places]
        waits = self.kind[turns] < 0
        self.lines = [turns[waits & (kinds == kind)].tolist() for kind in range(len(self.lines))]
        self.fill()

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
                    self.start(job, kind)

    def fill_queue(self) -> None:
        """The queue's next jobs, each on the type that its policy would take."""
        for job in [job for job in self.queue if job in self.waiting]:
            rates = np.where(np.array(self.free.left) >= self.gpus[job], self.packed[job], 0.0)
            if rates.any():
                self.start(job, int(rates.argmax()))
            elif not self.policy.backfills:
                break

    # Events

    def course(self) -> ScheduleCourse:
        """From event to event: arrivals, finishes, rounds."""
        next_round = 0.0
        while self.active or self.arrivals:
            if not self.active:  # an empty cluster decides as soon as a job comes
                next_round = self.arrival_time()
            coming = min(float(self.ends.min()), self.arrival_time(), next_round)
            self.advance(max(coming, self.now))
            while self.ends.min() <= self.now:
                job = int(self.ends.argmin())
                self.stop(job)
                self.finish[job] = self.now
                self.left[job] = 0.0
                del self.active[job]
                self.changed = True
            while self.arrival_time() <= self.now:
                job = self.arrivals.popleft()
                self.active[job] = self.waiting[job] = None
                self.changed = True
                self.queue.append(job)
                for kind in np.flatnonzero(self.packed[job] > 0):
                    self.lines[kind].append(job)
            if self.now >= next_round:
                self.decide()
                passed = math.floor(self.now / self.round_seconds + 1e-9)
                next_round = (passed + 1) * self.round_seconds
            else:
                self.fill()
        return ScheduleCourse(
            policy=self.policy.name,
            jobs=self.jobs,
            submit=self.submit,
            finish=self.finish,
            served=self.served,
            held=self.served.sum(axis=1) / self.gpus,
            restarts=self.starts - 1,
            productive=self.productive,
            lost=self.lost,
            end=self.now,
            objective=self.objectives[0] if self.objectives else math.nan,
            unplaced=self.unplaced,
        )

    def arrival_time(self) -> float:
        return float(self.submit[self.arrivals[0]]) if self.arrivals else math.inf
