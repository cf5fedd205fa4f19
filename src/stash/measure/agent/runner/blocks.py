"""Running one block: its batches, settling, timed steps, counters, and what all ranks agree is next."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace

from stash.core.ladder import Visit, round_of_visits
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.reads import COLD, IDLE, WARM, Tally, own_tally
from stash.measure.agent.runner import alone, cache_check
from stash.measure.agent.runner.block_plan import BlockSize, Plan, StepPace, plan, slowest
from stash.measure.agent.runner.cache_check import CacheEvidence
from stash.measure.agent.runner.judge import BlockReport, Judge, Outcome
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.rank import MemoryWatch, OwnRank
from stash.measure.agent.runner.timing import timed
from stash.measure.protocol.messages import BlockDone, Message, Payload, PhaseBegun, RoundsPlanned, WorkersTimed
from stash.measure.protocol.orders import Orders

# Supply ----------------------------------------------------------------------------------------------------
# What batches the blocks of a round get: all the same ones, step for step, drawn again for every round.
#
# The data blocks read them from the script's loaders. Replays get copies, made once a round in a pass that is not
# timed; the same pass brings into memory what a warm block reads, if no cold block has. So what differs between two
# rungs is never what they trained on. How batches are read and kept is the feeds' to know.

_UNEVEN = 0.05
"""By how much the largest batch of a step may exceed the mean of all ranks without a word."""


class Supply:
    """Sets this rank's feeds to what a block is to get; ``on_device``: a rung replays from the device."""

    def __init__(self, rank: OwnRank, on_device: bool) -> None:
        self._rank = rank
        self._plan: Plan
        self._device = rank.device if on_device else None
        self._round: int | None = None
        self._read = False
        """A cold block has read this round's samples."""
        self._kept = False
        """… and replays have them."""
        if any(feed.kind != "map" for feed in rank.feeds):
            rank.note(
                "batches come from a stream, which can only start over: every round trains on its first ones again, "
                "and they stand for all"
            )

    def gather(self, visit: Visit, number: int, plan: Plan) -> None:
        """Before a block of a round that goes by ``plan``: what replays and warm blocks need is in memory.

        Collective over all ranks, those that sit the block out too: none may begin while another still reads.
        """
        self._plan = plan
        if number != self._round:
            self._round, self._read, self._kept = number, False, False
            for feed in self._rank.feeds:
                feed.begin_round()
        if visit.feed == "cold":
            self._read = True
        elif not self._kept:
            self._kept = True
            for feed in self._rank.feeds:
                self._refill(feed)
            self._rank.agree([] if number > self._rank.orders.first_round else self._sizes(), self._compare)

    def serve(self, visit: Visit) -> None:
        """Every feed of this rank hands out the block's batches from now on; its queue must be drained."""
        size = self._plan.size(visit)
        for feed in self._rank.feeds:
            if visit.reads_data:
                feed.begin(visit.feed, _batches(size, feed) + feed.depth, self._first(size, feed))
            else:
                device = self._device if visit.feed == "resident" else None
                before = visit.lead_in * feed.per_step
                first = self._first(size, feed) - self._kept_from(feed) - before
                feed.begin(visit.feed, before + _batches(size, feed), first, device)

    def _refill(self, feed: Feed) -> None:
        plan = self._plan
        first, warm = self._kept_from(feed), self._first(plan.data, feed)
        replayed = range(first, first + _batches(plan.replay, feed))
        of_warm = range(min(first, warm), warm + _batches(plan.data, feed) + feed.depth)
        feed.refill(replayed if self._read else of_warm, replayed, self._device)

    def _sizes(self) -> list[int]:
        """Bytes of this rank's batches, in the order in which steps take them."""
        return [batches.size(kept) for feed in self._rank.feeds for kept in feed.ring.kept]

    def _compare(self, reports: list[list[int]]) -> None:
        """The leader's part: ranks wait for each other as soon as they exchange, and so for the largest batch."""
        steps = list(zip(*reports, strict=False))
        together = sum(map(sum, steps))
        excess = sum(map(max, steps)) * len(reports) / together - 1 if together else 0.0
        if excess > _UNEVEN:
            self._rank.note(
                f"the ranks' batches differ: the largest of a step has {1 + excess:.2f} times their mean size, and "
                "waiting for the rank that it keeps longest is part of the exchange (interconnect, network)"
            )

    def _first(self, size: BlockSize, feed: Feed) -> int:
        """Where a block begins in the round's batches, so that measured steps are of the same ones in all blocks.

        Cold blocks, which may have the longest way to settle, begin at the first. Below zero if others take longer.
        """
        return (self._plan.cold.settle - size.settle) * feed.per_step

    def _kept_from(self, feed: Feed) -> int:
        """The first of the round's batches that is kept for replays."""
        return max(0, self._first(self._plan.replay, feed))


def _batches(size: BlockSize, feed: Feed) -> int:
    """A block's batches, and one more of a loop that reads a batch ahead."""
    return size.together * feed.per_step + 1


# Blocks ----------------------------------------------------------------------------------------------------
# Running one block: settle, time the steps, read the counters, and agree with the other ranks what is next.

_MODES = {"warm": WARM, "cold": COLD}


class BlockRunner:
    """Runs the visits of a round on this rank; ``step_seconds`` sizes the blocks."""

    def __init__(self, rank: OwnRank, loops: Loops, step_seconds: float) -> None:
        self.rank, self._loops = rank, loops
        self._step_seconds = step_seconds
        self._began = 0.0
        self._plan: Plan
        self._learned: Plan
        """What holds from the next round on."""
        self._round: int | None = None
        self._supply: Supply
        self._judge: Judge
        self._sweeping = False
        """All files known to hold many samples are dropped before a cold block."""
        self._after_warm: Visit | None = None
        self._memory = MemoryWatch(rank)

    def start(self, rungs: tuple[str, ...]) -> None:
        """Size the blocks of rounds of these rungs, the same on every rank; the run's clock starts."""
        rank = self.rank
        visits = round_of_visits(rungs, 0, rank.place.world_size)
        own = StepPace(
            step_seconds=self._step_seconds,
            workers=max((feed.workers for feed in rank.feeds), default=0),
            batches_per_step=max((feed.per_step for feed in rank.feeds), default=1),
            accelerator=rank.device.type != "cpu",
            reads_ahead=any(feed.reads_ahead for feed in rank.feeds),
            agreement_seconds=self._agreement(),
            reading_seconds=max((feed.wait_of_a_step for feed in rank.feeds), default=0.0),
            ahead=max((feed.depth // feed.per_step for feed in rank.feeds), default=0),
        )

        def decide(reports: list[StepPace]) -> Plan:
            return plan(visits, slowest(reports), rank.orders.budget, rank.orders.most_steps)

        self._plan = self._learned = rank.agree(own, decide)
        self._supply = Supply(rank, on_device="resident" in rungs)
        self._judge = Judge(rank, self._plan)
        self._began = rank.clock.settled()
        rank.tell(PhaseBegun("blocks"))
        rank.tell(RoundsPlanned(self._plan.expected_seconds))

    def _agreement(self) -> float:
        """Seconds that ranks need to agree on something, once all are there."""
        self.rank.agree(None, lambda reports: None)
        began = time.perf_counter()
        self.rank.agree(None, lambda reports: None)
        return time.perf_counter() - began

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self.rank
        rank.tell(PhaseBegun(visit.rung, number))
        if number != self._round:
            self._round, self._plan = number, self._learned
        self._supply.gather(visit, number, self._plan)
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        began = rank.clock.now()
        report = (yield from self._run(visit, number)) if takes_part else None
        step = (rank.clock.now() - began) / (visit.lead_in + self._plan.size(visit).together)
        outcome = rank.agree(report, lambda reports: self._judge.decide(visit, number, reports, step))
        self._learned = outcome.plan or self._learned
        if outcome.again:
            self._plan, self._sweeping = self._learned, self._sweeping or outcome.sweep
            return (yield from self.visit(visit, number))
        if visit.measured:
            self._memory.written_down()
        if outcome.alone:
            self._alone(visit, number)
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, BlockReport]:
        rank = self.rank
        size = self._plan.size(visit)
        if rank.switches:
            rank.set_scope(visit.scope)
        tally = own_tally()
        self._prepare(visit, tally)
        barrier(rank.orders, f"{number}.{visit.rung}")
        for _ in range(visit.lead_in + size.settle):
            yield
        if visit.rung != "resident":
            self._memory.begin()
        block = yield from timed(rank, self._loops, visit.rung, number, size.steps, self._began)
        beside = [] if visit.rung == "resident" else [self._memory.end()]
        return self._drained(tally, block, beside) if visit.reads_data else _report(block, beside)

    def _prepare(self, visit: Visit, tally: Tally | None) -> None:
        """Set every loader to the block's feed; a data block starts with empty queues and fresh counters."""
        for feed in self.rank.feeds:
            feed.drain()
        if visit.reads_data and tally is not None:
            cache_check.begin(self.rank, tally, _MODES[visit.feed], self._sweeping)
        self._supply.serve(visit)

    def _drained(self, tally: Tally | None, block: BlockDone, beside: Sequence[Message | None]) -> BlockReport:
        """Empty the queues, untimed, and add what the loader's processes counted over the whole block."""
        for feed in self.rank.feeds:
            feed.drain()
        if tally is None:
            return _report(block, beside)
        totals, found = tally.totals(), cache_check.testimony(tally)
        workers_took = _times_of_workers(tally, block) if self.rank.leads else None
        tally.set_mode(IDLE)
        if totals["batches"] == 0:
            return _report(block, beside, found)
        made = block.steps * sum(feed.per_step for feed in self.rank.feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        looked = made / totals["looked"] if totals["looked"] else 0.0  # of those whose files were looked at
        making = totals["making_ns"] * 1e-9 * share
        workers = sum(feed.workers for feed in self.rank.feeds)
        busy = making / block.seconds / workers if workers else None
        block = replace(
            block,
            fetch_seconds=making,
            fetch_cpu_seconds=float(f"{totals['cpu_ns'] * 1e-9 * share:.3g}"),
            resident=found.resident / found.pages if found.pages else None,
            files=round(totals["files"] * looked),
            file_bytes=round(totals["bytes"] * looked),
            storage_bytes=None if found.storage is None else round(found.storage * share),
            read_bytes=None if found.called is None else round(found.called * share),
            held_bytes=totals["held"],
        )
        return _report(block, [*beside, workers_took], found, busy)

    def _alone(self, visit: Visit, number: int) -> None:
        """In the first rounds: the loader by itself (rates P and F), and the exchange by itself."""
        if visit.feed == "cold" and "warm" in self.rank.orders.rungs:
            self._after_warm = visit  # by itself it would empty the cache of what the warm block is about to read
        elif visit.reads_data:
            for each in filter(None, (visit, self._after_warm)):
                size = self._plan.size(each)
                alone.time_loader(self.rank, each, number, _MODES[each.feed], self._sweeping, size)
            self._after_warm = None
        elif visit.scope != "self":
            alone.time_exchange(self.rank, visit)


def _report(
    block: BlockDone,
    beside: Sequence[Message | None],
    testimony: CacheEvidence | None = None,
    busy: float | None = None,
) -> BlockReport:
    told = tuple(Payload.of(message) for message in beside if message is not None)
    return BlockReport(Payload.of(block), block.seconds, testimony or CacheEvidence(), busy, told)


def _times_of_workers(tally: Tally, block: BlockDone) -> WorkersTimed | None:
    makers = tally.makers()
    if not makers:
        return None
    made, seconds = tuple(each["batches"] for each in makers), tuple(each["making_ns"] * 1e-9 for each in makers)
    return WorkersTimed(block.rung, block.rank, block.round, made, seconds)


def barrier(orders: Orders, label: str, patience: float = 120.0) -> None:
    """Wait until all launches that run side by side have come to the same block."""
    if orders.crowd == 1 or orders.gang is None:
        return
    orders.files.barrier(orders.launch, label, orders.gang[0]).touch()
    everybody = orders.files.barrier(orders.launch, label, "*")
    deadline = time.monotonic() + patience
    while len(list(everybody.parent.glob(everybody.name))) < orders.crowd and time.monotonic() < deadline:
        time.sleep(0.005)
