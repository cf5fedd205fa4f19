"""The course of many jobs on a cluster under one policy: by events, exact between them.

A run is a pure function of jobs, cluster, rates, policy and settings. What it accounts, ``run_state`` keeps; what the
numbers mean for people, ``metrics`` knows.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from stash.core.errors import UserError
from stash.schedule import hadar
from stash.schedule.job_policies import JobPolicy
from stash.schedule.matrix import RateMatrix, RateTable
from stash.schedule.records import JobDemand, LabCluster, QueuedJob, ShareAllocation, WholeNumbers
from stash.schedule.round_choice import chosen, ordered, priorities
from stash.schedule.run_state import RunSettings, RunState, ScheduleCourse
from stash.schedule.shares import isolated_rates


def simulate(
    jobs: Sequence[QueuedJob],
    cluster: LabCluster,
    matrix: RateMatrix,
    policy: JobPolicy,
    settings: RunSettings | None = None,
) -> ScheduleCourse:
    """Run all jobs to their ends; raises UserError for a job that no type of the cluster can run."""
    table = RateTable(jobs, cluster, matrix)
    lacking = [job.name for number, job in enumerate(jobs) if not table.packed[number].any()]
    if lacking:
        raise UserError(f"{lacking[0]} has no rate on any type of this cluster; leave it out")
    run = _Run(tuple(jobs), cluster, table, policy, settings or RunSettings())
    (run.whole_rounds if run.settings.whole_rounds else run.events)()
    return run.course()


class _Run(RunState):
    """Decisions, and the clock."""

    # Decisions

    def demand(self, jobs: WholeNumbers) -> JobDemand:
        left = self.left_now(jobs)
        if self.policy.name.startswith("ftf"):
            self.isolated[jobs] += np.maximum(self.isolated_left[jobs] - left, 0.0) / self.isolated_rate[jobs]
            self.isolated_left[jobs] = left
        found = JobDemand(
            self.packed[jobs],
            self.gpus[jobs],
            self.weight[jobs],
            left,
            self.now - self.submit[jobs],
            self.cluster.counts,
            self.isolated[jobs],
            self.kind[jobs],
            self.deadline[jobs] - self.now,
            self.cluster.cost_per_gpu(),
            jobs,
            self.table.kind[jobs],
        )
        if self.policy.name.startswith("ftf"):
            self.isolated_rate[jobs] = isolated_rates(found)
        return found

    def allocate(self, jobs: WholeNumbers) -> None:
        """New shares for all jobs that are there; what they received is counted again."""
        if self.settings.whole_rounds:
            elapsed = self.now - max(self.allocated_at, 0.0)
            self.deficit[jobs] += self.x[jobs] * elapsed - self.received[jobs]
        self.received[jobs] = 0.0
        demand = self.demand(jobs)
        found = self.allocation(demand)
        self.x[jobs] = found.x
        if math.isnan(self.objective) and not len(self.first_ids):
            self.objective, self.first_x, self.first_ids = found.objective, found.x, jobs
        if found.order is not None:
            self.queue = jobs[found.order].tolist()
        self.allocated_at, self.changed = self.now, False

    def allocation(self, demand: JobDemand) -> ShareAllocation:
        """The policy's, from memory where it does not look at work and the same jobs were there before."""
        if self.policy.by_work:
            return self.policy.allocate(demand, self.settings.seed)
        order = np.lexsort((demand.weight, demand.model))
        key = demand.model[order].tobytes() + demand.weight[order].tobytes()
        if key not in self.known:
            found = self.policy.allocate(demand, self.settings.seed)
            self.known[key] = found.x[order]
            return found
        x = np.empty(demand.rates.shape)
        x[order] = self.known[key]
        return ShareAllocation(x, math.nan)

    def tick(self, jobs: WholeNumbers) -> None:
        """Bring the received time of running jobs up to now."""
        running = jobs[self.kind[jobs] >= 0]
        self.received[running, self.kind[running]] += self.now - self.counted[running]
        self.counted[running] = self.now

    def there(self) -> WholeNumbers:
        return np.fromiter(self.active, dtype=np.int64, count=len(self.active))

    def decide(self) -> None:
        """The beginning of a round: who runs, on which type, and where."""
        jobs = self.there()
        if not len(jobs):
            return
        if self.policy.rule is None:
            self.by_prices(jobs)
            return
        if not self.policy.preempts and not self.settings.whole_rounds and self.allocated_at >= 0:
            self.fill()  # what runs goes on, so there is nothing else to decide
            return
        self.tick(jobs)
        own = self.settings.settle_seconds
        settle = self.settings.round_seconds if own is None else own
        due = self.now - self.allocated_at >= settle * (1 - 1e-9) or self.allocated_at <= 0
        if due and (self.changed or (self.policy.by_work and not self.settings.whole_rounds)):
            self.allocate(jobs)
        order = self.turns(jobs)
        types = self.choice(jobs, order)
        running = jobs[self.kind[jobs] >= 0]
        for job, kind in zip(running.tolist(), self.kind[running].tolist(), strict=True):
            if types.get(job) != kind:
                self.stop(job)
        starting = [job for job in types if job in self.waiting]
        for job in sorted(starting, key=lambda each: -self.sizes[each]):
            self.settle_in(job, types[job])
        if not self.settings.whole_rounds:
            if self.settings.spreading and self.policy.preempts:
                self.consolidate(jobs)
            if self.policy.fills:
                self.line_up(jobs, order)
            self.fill()

    def turns(self, jobs: WholeNumbers) -> WholeNumbers:
        """Jobs on types, as entries j·T + t, in the order in which they are to run."""
        x = self.x.take(jobs, 0)  # a third of the time of x[jobs]
        runs = self.packed.take(jobs, 0) > 0
        priority = np.where(runs, priorities(x, self.received.take(jobs, 0), self.settings.round_seconds), 0.0)
        if not self.settings.whole_rounds:
            return ordered(priority, runs if self.policy.fills else runs & (x > 0), self.closeness[jobs])
        types = list(range(len(self.cluster.types)))
        if not self.policy.aware:
            self.random.shuffle(types)
        allowed = runs if self.policy.fills or self.policy.backfills else runs & (x > 0)
        return ordered(priority, allowed, self.deficit.take(jobs, 0), types)

    def choice(self, jobs: WholeNumbers, order: WholeNumbers) -> dict[int, int]:
        """The type of each job that runs in this round."""
        if not self.policy.preempts:
            return self.kept(jobs, order)
        found = chosen(order, self.gpus[jobs], self.available())
        return dict(zip(jobs[list(found)].tolist(), found.values(), strict=True))

    def available(self) -> list[int]:
        """GPUs of each type that are up."""
        counts = [int(each) for each in self.cluster.counts]
        for _, _, place in self.down:
            for node, gpus in place:
                counts[self.free.kind_of[node]] -= gpus
        return counts

    def kept(self, jobs: WholeNumbers, order: WholeNumbers) -> dict[int, int]:
        """Without preemption: what runs, and what fits beside it."""
        found = {int(job): int(self.kind[job]) for job in jobs if self.kind[job] >= 0}
        counts = self.available()
        for job, kind in found.items():
            counts[kind] -= int(self.gpus[job])
        waits = order[self.kind[jobs[order // len(counts)]] < 0]
        more = chosen(waits, self.gpus[jobs], counts) if max(counts) > 0 else {}
        return {**found, **{int(jobs[at]): kind for at, kind in more.items()}}

    def line_up(self, jobs: WholeNumbers, order: WholeNumbers) -> None:
        """For GPUs that come free within the round: the jobs that wait for each type, in order."""
        places, kinds = np.divmod(order, len(self.lines))
        turns = jobs[places]
        waits = self.kind[turns] < 0
        for kind in range(len(self.lines)):
            self.lines[kind] = turns[waits & (kinds == kind)].tolist()

    def settle_in(self, job: int, kind: int) -> bool:
        """Start it on a type where it fits at a known rate; else it waits."""
        place = self.free.find(kind, self.sizes[job])
        rate = None if place is None else self.speed(job, kind, len(place))
        if place is None or not rate:
            self.unplaced += 1
            return False
        self.start(job, kind, place, rate)
        return True

    def speed(self, job: int, kind: int, nodes: int) -> float | None:
        if not self.settings.spreading:
            return float(self.packed[job, kind])
        return self.table.spread(job, kind, nodes)

    def consolidate(self, jobs: WholeNumbers) -> None:
        """Move spread jobs to fewer nodes where that ends them sooner, the restart included."""
        for job in jobs[(self.kind[jobs] >= 0) & (self.gpus[jobs] > 1)].tolist():
            kind, place = int(self.kind[job]), self.place[job]
            if len(place) <= self.table.fewest[self.table.kind[job]][kind]:
                continue
            better = self.free.find(kind, self.sizes[job])
            rate = None if better is None or len(better) >= len(place) else self.speed(job, kind, len(better))
            if better is not None and rate:
                pause = float(self.table.restart[job]) if self.settings.restarts else 0.0
                left = float(self.left_now(np.array([job]))[0])
                if left / rate + pause < left / self.rate[job]:
                    self.stop(job)
                    self.start(job, kind, better, rate)

    def fill(self) -> None:
        """Give free GPUs to waiting jobs, in the order of the last round, then of arrival."""
        if not self.waiting or max(self.free.left) == 0 or self.policy.rule is None:
            return
        if self.policy.name == "allox":
            if not self.changed:  # who was not matched to a free GPU is better off waiting for another
                return
            self.changed = False
            jobs = np.array(list(self.waiting), dtype=np.int64)
            x = self.policy.allocate(replace(self.demand(jobs), counts=np.array(self.free.left))).x
            for at in np.flatnonzero(x.any(axis=1)):
                self.settle_in(int(jobs[at]), int(x[at].argmax()))
        elif self.policy.fills:
            for kind, line in enumerate(self.lines):
                for job in line:
                    if job in self.waiting and self.sizes[job] <= self.free.left[kind]:
                        self.settle_in(job, kind)
        else:
            self.fill_queue()

    def fill_queue(self) -> None:
        """The queue's next jobs, each on the type that its policy would take."""
        free = self.free.left
        for job in self.in_turn():
            possible = [kind for kind in self.able[self.number[job]] if free[kind] >= self.sizes[job]]
            if possible:
                if self.policy.seeded:
                    draw = np.random.default_rng((self.settings.seed, job, len(possible)))
                    kind = sorted(possible)[draw.integers(len(possible))]
                else:
                    kind = possible[0]
                self.settle_in(job, kind)
                if not any(free):
                    break
            elif not self.policy.backfills:
                break

    def in_turn(self) -> Iterator[int]:
        """Those that wait, in the queue's order; without preemption that in which they came."""
        if self.policy.preempts:
            yield from (job for job in self.queue if job in self.waiting)
            return
        last = -1
        while self.waiting and (first := next(iter(self.waiting))) != last:
            last = first
            yield first

    def by_prices(self, jobs: WholeNumbers) -> None:
        """Hadar's round: places by payoff."""
        asked = hadar.HadarRound(
            jobs=jobs,
            work=self.work[jobs],
            left=self.left_now(jobs),
            elapsed=self.now - self.submit[jobs],
            gpus=self.gpus[jobs],
            running=[self.place[job] for job in jobs.tolist()],
            pause=self.table.restart[jobs] * (self.settings.restarts & ~np.isnan(self.first[jobs])),
            up=[node.gpus for node in self.cluster.nodes],
            kind_of=self.free.kind_of,
            down={node for _, _, place in self.down for node, _ in place},
        )
        found = hadar.place(asked, self.table, self.settings.spreading)
        for job in jobs[self.kind[jobs] >= 0].tolist():
            if found.places.get(job) != self.place[job]:
                self.stop(job)
        for job, place in found.places.items():
            if place != self.place[job]:
                kinds = {self.free.kind_of[node]: None for node, _ in place}
                slowest = min(kinds, key=self.packed[job].__getitem__)
                self.start(job, slowest, place, found.rates[job])
        self.changed = False

    # Courses

    def arrive(self) -> None:
        while self.next_arrival < len(self.arrivals):
            job = self.arrivals[self.next_arrival]
            if self.submit[job] > self.now:
                break
            self.next_arrival += 1
            self.enter(job)
            if self.policy.preempts and not self.policy.fills:
                self.queue.append(job)
            self.come_last(job)

    def come_last(self, job: int) -> None:
        """Until the next round."""
        if self.policy.fills and not self.settings.whole_rounds:
            for kind in self.able[self.number[job]]:
                self.lines[kind].append(job)

    def arrival_time(self) -> float:
        at = self.next_arrival
        return float(self.submit[self.arrivals[at]]) if at < len(self.arrivals) else math.inf

    def finish_time(self) -> float:
        while self.heap and self.version[self.heap[0][1]] != self.heap[0][2]:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else math.inf

    def events(self) -> None:
        """From event to event: arrivals, finishes, rounds, failures."""
        length, next_round = self.settings.round_seconds, 0.0
        while self.active or self.next_arrival < len(self.arrivals):
            if not self.active:  # an empty cluster decides as soon as a job comes
                next_round = self.arrival_time()
            times = (self.finish_time(), self.arrival_time(), next_round, self.failure_time())
            self.advance(max(min(times), self.now))
            self.end_finished()
            self.arrive()
            self.fail_nodes()
            if self.now >= next_round:
                self.decide()
                next_round = (math.floor(self.now / length + 1e-9) + 1) * length
            else:
                self.fill()

    def end_finished(self) -> None:
        while self.finish_time() <= self.now:
            job = heapq.heappop(self.heap)[1]
            self.end_work(job)
            self.finish[job], self.left[job] = self.now, 0.0
            self.leave(job)

    def failure_time(self) -> float:
        return min(self.failures[0][0] if self.failures else math.inf, self.down[0][0] if self.down else math.inf)

    def fail_nodes(self) -> None:
        """Repairs and failures that are due: jobs of a failed node fall back to their last copy, and wait."""
        while self.down and self.down[0][0] <= self.now:
            _, node, place = heapq.heappop(self.down)
            self.free.give(place)
            for each, gpus in place:
                self.unused[self.free.kind_of[each]] += gpus
            mtbf = self.settings.node_mtbf or math.inf
            heapq.heappush(self.failures, (self.now + float(self.random.exponential(mtbf)), node))
            self.changed = True
        while self.failures and self.failures[0][0] <= self.now:
            _, node = heapq.heappop(self.failures)
            for job in [each for each in self.active if any(at == node for at, _ in self.place[each])]:
                self.fall_back(job)
            place = ((node, self.cluster.nodes[node].gpus),)
            self.free.take(place)
            self.unused[self.free.kind_of[node]] -= place[0][1]
            heapq.heappush(self.down, (self.now + self.settings.repair_seconds, node, place))
            self.changed = True

    def fall_back(self, job: int) -> None:
        worked = max(self.now - float(self.since[job]), 0.0)
        since_copy = worked % self.settings.checkpoint_seconds
        self.end_work(job, lost_steps=since_copy * float(self.rate[job]))
        self.release(job)
        self.wait(job)
        self.come_last(job)

    def whole_rounds(self) -> None:
        """Gavel's clock: a round ends with the last of its jobs, and nothing happens within it."""
        length = self.settings.round_seconds
        while self.active or self.next_arrival < len(self.arrivals):
            if not self.active:
                self.advance(max(self.arrival_time(), self.now))
            self.arrive()
            self.decide()
            start, jobs = self.now, self.there()
            running = jobs[self.kind[jobs] >= 0]
            if not len(running):
                self.wait_for_next(start, length)
                continue
            ends = self.since[running] + self.left[running] / self.rate[running]
            end = min(float(ends.max()), start + length)
            late = ends > end * (1 + 1e-12)
            over = sorted(zip(ends[~late].tolist(), running[~late].tolist(), strict=True))
            for when, job in over:
                self.advance(max(when, self.now))
                self.end_work(job)
                self.finish[job], self.left[job] = self.now, 0.0
            self.advance(max(end, self.now))
            for _, job in over:
                self.leave(job)

    def wait_for_next(self, start: float, length: float) -> None:
        """Nobody runs: on to the next arrival, or where there is none, to an allocation that is due."""
        coming = self.arrival_time()
        if math.isinf(coming):
            self.allocated_at = -math.inf
            coming = start + length
        self.advance(coming)

    def course(self) -> ScheduleCourse:
        return ScheduleCourse(
            policy=self.policy.name, jobs=self.jobs, settings=self.settings, submit=self.submit,
            finish=self.finish, served=self.served, held=self.held, restarts=self.restarts,
            productive=np.array(self.productive), end=self.now, objective=self.objective,
            lost={cause: np.array(each) for cause, each in self.lost.items()},
            first_x=self.first_x, first_ids=self.first_ids, unplaced=self.unplaced,
        )  # fmt: skip
