"""The state of a simulated cluster: who runs where since when, what is left, and the account of every GPU-second.

Progress between two events is rate × time, so nothing is stepped: a job's account is settled when it stops. Who
should run, ``simulate`` decides.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from stash.core.errors import UserError
from stash.schedule.job_policies import JobPolicy
from stash.schedule.matrix import RateTable
from stash.schedule.placement import FreeGpus, GangPlace
from stash.schedule.records import Floats, LabCluster, QueuedJob, WholeNumbers

CAUSES = ("moves", "spreading", "fragmentation", "idle", "failures")
_LIMIT = 200.0
"""Times the work that there is: a run beyond that would not end."""


@dataclass(frozen=True)
class RunSettings:
    """How a cluster is run."""

    round_seconds: float = 360.0
    settle_seconds: float | None = None
    """The least time between two allocations; else a round."""
    spreading: bool = True
    """Whether a gang over more nodes than it needs runs at its rate there."""
    restarts: bool = True
    """Whether stopping and starting again takes the time that the matrix says."""
    whole_rounds: bool = False
    """Whether GPUs of a job that ends stay its own until the round does, as in Gavel's simulator."""
    node_mtbf: float | None = None
    """Mean seconds between failures of one node."""
    repair_seconds: float = 4 * 3600.0
    checkpoint_seconds: float = 1800.0
    """Between the copies that a failure falls back on."""
    seed: int = 0

    @classmethod
    def gavel(cls, seed: int = 0) -> RunSettings:
        """As Gavel's simulator counts: packed rates, free moves, whole rounds, allocations 1,920 s apart."""
        return cls(settle_seconds=1920.0, spreading=False, restarts=False, whole_rounds=True, seed=seed)


@dataclass(frozen=True)
class ScheduleCourse:
    """What became of every job, in the order of the jobs that were given, and of every GPU-second by type."""

    policy: str
    jobs: tuple[QueuedJob, ...]
    settings: RunSettings
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
    """Of the first allocation."""
    first_x: Floats
    """Shares of the first allocation; empty for a policy of places."""
    first_ids: WholeNumbers
    unplaced: int = 0
    """Gangs that a round had chosen and no known placement could hold."""


class RunState:
    """The state of one simulation; indices are places in ``jobs`` sorted by submission."""

    def __init__(
        self,
        jobs: tuple[QueuedJob, ...],
        cluster: LabCluster,
        table: RateTable,
        policy: JobPolicy,
        settings: RunSettings,
    ) -> None:
        self.jobs, self.cluster, self.table, self.settings = jobs, cluster, table, settings
        self.policy = policy.plain() if settings.whole_rounds else policy
        count, types = len(jobs), len(cluster.types)
        self.submit = np.array([job.submit for job in jobs])
        self.arrivals = [int(each) for each in np.argsort(self.submit, kind="stable")]
        self.gpus = np.array([job.gpus for job in jobs], dtype=np.int64)
        self.weight = np.array([job.weight for job in jobs])
        self.deadline = np.array([math.inf if job.deadline is None else job.deadline for job in jobs])
        self.left = np.array([job.steps - job.done for job in jobs])
        self.packed, self.best = table.packed, table.packed.max(axis=1)
        self.closeness = self.packed / self.best[:, None]
        self.work = np.array([job.steps for job in jobs]) / self.best
        self.rate, self.began, self.since = np.zeros(count), np.zeros(count), np.zeros(count)
        """Of the running: steps per second, when it got its GPUs, and from when on it makes steps."""
        self.kind = np.full(count, -1, dtype=np.int64)
        self.place: list[GangPlace] = [()] * count
        self.version = [0] * count
        self.first, self.finish, self.held = np.full(count, np.nan), np.full(count, np.nan), np.zeros(count)
        self.served, self.restarts = np.zeros((count, types)), np.zeros(count, dtype=np.int64)
        self.x, self.received, self.deficit = (np.zeros((count, types)) for _ in range(3))
        self.counted = np.zeros(count)
        """Until when the running time is in ``received``."""
        self.isolated, self.isolated_left = np.zeros(count), self.left.copy()
        self.isolated_rate = np.ones(count)
        self.productive = [0.0] * types
        self.lost = {cause: [0.0] * types for cause in CAUSES}
        self.free = FreeGpus(cluster)
        self.unused = [int(each) for each in cluster.counts]
        """GPUs that do nothing; in whole rounds more than are free."""
        self.waits_for = [0] * types
        self.sizes, self.number = self.gpus.tolist(), table.kind.tolist()
        """Plain numbers, for what is done job by job: arithmetic on numpy's scalars is several times slower."""
        self.able = [[kind for kind in np.argsort(-row, kind="stable").tolist() if row[kind] > 0]
                     for row in table.of_kind]  # fmt: skip
        """By number of a job's kind: the types it runs on, the fastest first."""
        self.heap: list[tuple[float, int, int]] = []
        self.active: dict[int, None] = {}
        self.waiting: dict[int, None] = {}
        self.now, self.next_arrival = 0.0, 0
        self.allocated_at, self.changed = -math.inf, True
        self.lines: list[list[int]] = [[] for _ in range(types)]
        """By type the jobs that wait for its GPUs, in order; those that have got some elsewhere stay in it."""
        self.queue: list[int] = []
        self.known: dict[bytes, Floats] = {}
        self.objective = math.nan
        self.first_x, self.first_ids = np.zeros((0, types)), np.zeros(0, dtype=np.int64)
        self.unplaced = 0
        work = float((self.gpus * self.left / self.best).sum() / cluster.gpus)
        self.last = float(self.submit.max(initial=0.0)) + _LIMIT * (
            work + float((self.left / self.best).max(initial=0))
        )
        self._plan_failures()

    def _plan_failures(self) -> None:
        """Of each node the first, drawn."""
        settings, cluster = self.settings, self.cluster
        self.random = np.random.default_rng(settings.seed)
        self.down: list[tuple[float, int, GangPlace]] = []
        self.failures: list[tuple[float, int]] = []
        if settings.node_mtbf is not None:
            draws = self.random.exponential(settings.node_mtbf, len(cluster.nodes))
            self.failures = sorted((float(each), number) for number, each in enumerate(draws))
            heapq.heapify(self.failures)

    # Time and accounts

    def advance(self, to: float) -> None:
        """Let time pass: what no job uses is idle, or fragmented where a job waits that could run there."""
        span = to - self.now
        if span > 0:
            for kind, unused in enumerate(self.unused):
                if unused:
                    cause = "fragmentation" if self.waits_for[kind] else "idle"
                    self.lost[cause][kind] += span * unused
            for _, _, place in self.down:
                for node, gpus in place:
                    self.lost["failures"][self.free.kind_of[node]] += span * gpus
        self.now = to
        if to > self.last:
            raise UserError(
                f"{self.policy.name} has not finished after {to / 3600:,.0f} h of simulated time, {_LIMIT:.0f} times "
                "the work that there is: it starves a job; choose another policy"
            )

    def enter(self, job: int) -> None:
        self.active[job] = None
        self.wait(job)
        self.changed = True

    def wait(self, job: int) -> None:
        self.waiting[job] = None
        for kind in self.able[self.number[job]]:
            self.waits_for[kind] += 1

    def unwait(self, job: int) -> None:
        del self.waiting[job]
        for kind in self.able[self.number[job]]:
            self.waits_for[kind] -= 1

    def start(self, job: int, kind: int, place: GangPlace, rate: float) -> None:
        """Give a waiting job its GPUs."""
        self.free.take(place)
        self.begin_work(job, kind, place, rate)

    def begin_work(self, job: int, kind: int, place: GangPlace, rate: float) -> None:
        self.unwait(job)
        again = not math.isnan(self.first[job]) or self.jobs[job].done > 0
        if math.isnan(self.first[job]):
            self.first[job] = self.now
        pause = float(self.table.restart[job]) if again and self.settings.restarts else 0.0
        if again:
            self.restarts[job] += 1
        self.kind[job], self.place[job], self.rate[job] = kind, place, rate
        self.began[job] = self.counted[job] = self.now
        self.since[job] = since = self.now + pause
        for node, gpus in place:
            self.unused[self.free.kind_of[node]] -= gpus
        self.version[job] += 1
        if not self.settings.whole_rounds:
            heapq.heappush(self.heap, (since + float(self.left[job]) / rate, job, self.version[job]))

    def end_work(self, job: int, lost_steps: float = 0.0) -> None:
        """Account for the time since it began; its GPUs are unused from now on."""
        now, began = self.now, float(self.began[job])
        working = min(float(self.since[job]), now)
        paused, worked, rate = working - began, now - working, float(self.rate[job])
        done = worked * rate
        lost_steps = min(lost_steps, done)
        wasted = lost_steps / done if done > 0 else 0.0
        for node, gpus in self.place[job]:
            kind = self.free.kind_of[node]
            packed = float(self.packed[job, kind])
            at_rate = gpus * worked * (rate / packed if packed > 0 else 1.0)
            self.productive[kind] += at_rate * (1 - wasted)
            self.lost["moves"][kind] += gpus * paused
            self.lost["spreading"][kind] += gpus * worked - at_rate
            self.lost["failures"][kind] += at_rate * wasted
            self.served[job, kind] += gpus * (now - began)
            self.unused[kind] += gpus
        self.held[job] += now - began
        self.received[job, self.kind[job]] += now - self.counted[job]
        self.left[job] -= done - lost_steps
        self.version[job] += 1
        self.kind[job] = -1

    def stop(self, job: int) -> None:
        """Take a running job's GPUs; it waits again."""
        self.end_work(job)
        self.release(job)
        self.wait(job)

    def release(self, job: int) -> None:
        self.free.give(self.place[job])
        self.place[job] = ()

    def leave(self, job: int) -> None:
        """Of a job that has ended."""
        self.release(job)
        del self.active[job]
        self.changed = True

    def left_now(self, jobs: WholeNumbers) -> Floats:
        running = self.kind[jobs] >= 0
        done = np.maximum(self.now - self.since[jobs], 0.0) * self.rate[jobs]
        return np.asarray(np.maximum(self.left[jobs] - np.where(running, done, 0.0), 1e-9), dtype=float)
