"""Run the blocks of a round: supply their batches, settle, time steps, read counters, agree on what is next.

All blocks of a round train on the same batches, step for step; every round draws others. What a block adds up to
(``timed_steps``), whether it was what it claims (``judge``) and how long it is (``block_plan``) others know.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import NamedTuple

from stash.core.ladder import Visit, round_of_visits
from stash.core.measured import Block, StagePasses, WorkerTimes
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.tally import COLD, IDLE, TOOK, WARM, Tally, own_tally
from stash.measure.agent.runner import alone
from stash.measure.agent.runner.block_plan import (
    MAX_STEPS,
    BlockSize,
    Plan,
    StepPace,
    plan_blocks,
    slowest_pace,
)
from stash.measure.agent.runner.judge import (
    BlockReport,
    CacheEvidence,
    Judge,
    Outcome,
    begin_data_block,
    evidence_of,
)
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.parallelism import group_names, stage_layers
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import MemoryWatch, time_steps
from stash.measure.agent.runner.traced_steps import TRACED_STEPS, trace_steps
from stash.measure.agent.wraps.waits import ledger
from stash.measure.protocol.messages import (
    Message,
    Payload,
    PhaseBegun,
    RoundsPlanned,
)

_MODES = {"warm": WARM, "cold": COLD}
_MAX_PASSES = 400
"""Of a block of one rank, that are written down, or those of one step."""
_PASSES_OF_ROUNDS = 5
_UNEVEN = 0.05
"""By how much the largest batch of a step may exceed the mean of all ranks without a word."""


class _RoundUnderWay(NamedTuple):
    number: int | None
    plan: Plan
    took: float = 0.0
    """Seconds of its blocks so far."""
    read_alone: bool = False
    """Loaders were timed by themselves."""


class BlockRunner:
    """Runs the visits of rounds of ``rungs`` on this rank; ``step_seconds`` sizes the blocks, alike on every rank."""

    def __init__(
        self, rank: OwnRank, loops: Loops, step_seconds: float, rungs: tuple[str, ...]
    ) -> None:
        self._rank, self._loops = rank, loops
        visits = round_of_visits(rungs, 0, rank.place.world_size)
        reading = max((feed.wait_of_a_step for feed in rank.feeds), default=0.0)
        rank.agree(None, lambda reports: None)
        began = time.perf_counter()  # when all are there
        rank.agree(None, lambda reports: None)
        own = StepPace(
            step_seconds=max(step_seconds, reading),
            workers=max((feed.workers for feed in rank.feeds), default=0),
            batches_per_step=max((feed.per_step for feed in rank.feeds), default=1),
            accelerator=rank.device.type != "cpu",
            reads_ahead=any(feed.learned.reads_ahead for feed in rank.feeds),
            agreement_seconds=time.perf_counter() - began,
            reading_seconds=reading,
            ahead=max((feed.depth // feed.per_step for feed in rank.feeds), default=0),
        )
        budget, most = rank.orders.budget, rank.orders.most_steps
        self._plan = rank.agree(
            own, lambda paces: plan_blocks(visits, slowest_pace(paces), budget, most)
        )
        """What holds from the next round on."""
        self._round = _RoundUnderWay(None, self._plan)
        self._supply = Supply(rank, on_device="resident" in rungs)
        self._judge = Judge(rank, self._plan)
        self._memory = MemoryWatch(rank)
        self._sweeping = False
        """All files known to hold many samples are dropped before a cold block."""
        self._after_warm: Visit | None = None
        """A cold one whose second opinion has to wait."""
        self._layers: tuple[int, ...] = ()
        if rank.place.world_size > 1:  # not beside steps: all objects are looked through
            ledger.names, self._layers = group_names(), stage_layers()
        self._began = rank.clock.synchronize()
        rank.publish(PhaseBegun("blocks"), RoundsPlanned(self._plan.expected_seconds))

    @property
    def round_seconds(self) -> float:
        """Seconds of the round's blocks so far, without second opinions and blocks that were run again."""
        return self._round.took

    def run_visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self._rank
        rank.publish(PhaseBegun(visit.rung, number))
        came = rank.clock.now()
        if number != self._round.number:
            begins = self._plan
            if self._round.read_alone:
                begins = begins.after_reading_alone(rank.orders.most_steps or MAX_STEPS)
            self._round = _RoundUnderWay(number, begins)
        sizes = self._round.plan
        self._supply.gather_batches(visit, number, sizes)
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        began = rank.clock.now()
        report = (yield from self._run_block(visit, number)) if takes_part else None
        step = (rank.clock.now() - began) / (visit.lead_in + sizes.block_size(visit).total_steps)
        took = self._round.took + rank.clock.now() - came
        outcome = rank.agree(
            report, lambda reports: self._judge.decide(visit, number, reports, step, took)
        )
        self._plan = outcome.plan or self._plan
        if outcome.again:
            self._round = self._round._replace(plan=self._plan)
            self._sweeping = self._sweeping or outcome.sweep
            return (yield from self.run_visit(visit, number))
        if visit.measured:
            self._memory.written_down()
        if outcome.alone:
            self._time_alone(visit, number)
        read_alone = self._round.read_alone or (outcome.alone and visit.reads_data)
        self._round = self._round._replace(took=took, read_alone=read_alone)
        return outcome

    def trace_top_rung(self, top: str, folder: Path) -> Iterator[None]:
        """Record steps under the ``top`` rung of the round under way, in which blocks are over."""
        rank, number, sizes = self._rank, self._round.number or 0, self._round.plan
        visits = round_of_visits((top,), number, rank.place.world_size)
        visit = next(visit for visit in visits if visit.measured)
        if visit.active != "all" and rank.place.world_size > 1:
            rank.note(f"no steps were traced: under the rung {top} one rank trains alone")
            return
        self._supply.gather_batches(visit, number, sizes)
        yield from self._settle(visit)
        try:
            target = folder / f"rank{rank.place.rank}.json.gz"
            yield from trace_steps(target, min(TRACED_STEPS, sizes.block_size(visit).steps))
        except (OSError, RuntimeError) as error:
            rank.note(f"the trace of rank {rank.place.rank} was not written: {error}")

    def _settle(self, visit: Visit, tally: Tally | None = None, kept: int = 0) -> Iterator[None]:
        """Run a block in, but for as many steps as are ``kept``; one that reads data begins with empty queues.

        The ``tally`` counts what is read.
        """
        rank = self._rank
        if rank.known.switches:
            rank.set_scope(visit.scope)
        for feed in rank.feeds:
            feed.drain()
        if visit.reads_data and tally is not None:  # with empty queues and fresh counters
            begin_data_block(rank, tally, _MODES[visit.feed], self._sweeping)
        self._supply.serve_block(visit)
        settle = self._round.plan.block_size(visit).settle
        for _ in range(visit.lead_in + settle - min(settle, kept)):
            yield

    def _run_block(self, visit: Visit, number: int) -> Generator[None, None, BlockReport]:
        rank, tally, memory = self._rank, own_tally(), self._memory
        is_of_host = visit.rung != "resident"
        yield from self._settle(visit, tally, kept=1)
        if is_of_host:
            memory.begin()
        size = self._round.plan.block_size(visit)
        block = yield from time_steps(
            rank,
            self._loops,
            visit.rung,
            number,
            size.steps,
            self._began,
            settles=size.settle > 0,
        )
        beside: list[Message | None] = [memory.end() if is_of_host else None]
        if visit.feed == "replay":
            beside.append(_time_passes(block, self._layers))
        evidence, busy = CacheEvidence(), None
        if visit.reads_data:
            for feed in rank.feeds:
                feed.drain()
            if tally is not None:
                beside.append(_times_of_workers(tally, block) if rank.leads else None)
                evidence = evidence_of(tally)
                block, busy = self._add_counts(tally.sum_counters(), block, evidence)
                tally.set_mode(IDLE)
        messages = tuple(Payload.pack(message) for message in beside if message is not None)
        return BlockReport(Payload.pack(block), block.seconds, evidence, busy, messages)

    def _add_counts(
        self, totals: Mapping[str, int], block: Block, found: CacheEvidence
    ) -> tuple[Block, float | None]:
        """With what the loader's processes counted over the whole block, and how busy its workers were."""
        feeds = self._rank.feeds
        if totals["batches"] == 0:
            return block, None
        made = block.steps * sum(feed.per_step for feed in feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        # of those whose files were looked at
        looked = made / totals["looked"] if totals["looked"] else 0.0
        making = totals["making_ns"] * 1e-9 * share
        workers = sum(feed.workers for feed in feeds)
        counted = replace(
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
        return counted, making / block.seconds / workers if workers else None

    def _time_alone(self, visit: Visit, number: int) -> None:
        """In the first rounds: the loader by itself (rates P and F), and the exchange by itself."""
        rank, plan = self._rank, self._round.plan
        if visit.feed == "cold" and "warm" in rank.orders.rungs:
            # by itself it would empty the cache of what the warm block is about to read
            self._after_warm = visit
        elif visit.reads_data:
            for each in filter(None, (visit, self._after_warm)):
                alone.time_loader(rank, each, number, _MODES[each.feed], self._sweeping, plan)
            self._after_warm = None
        elif visit.scope != "self":
            alone.time_exchange(rank, visit)


def _time_passes(block: Block, layers: tuple[int, ...]) -> StagePasses | None:
    """What a rank's stages of a pipeline did in some steps of the block; ``None`` without a pipeline."""
    steps = ledger.last_block.passes
    if not steps or block.round >= _PASSES_OF_ROUNDS:
        return None
    named = [
        ["rest" if at is None else f"{at[0]}{at[1]}{at[2]}" for at, _ in step] for step in steps
    ]
    first = named[0]
    alike = [step for step, names in zip(steps, named, strict=True) if names == first]
    kept = alike[: max(1, _MAX_PASSES // len(first))]
    seconds = tuple(seconds for step in kept for _, seconds in step)
    return StagePasses(block.rank, block.round, block.rung, tuple(first), seconds, layers)


def _times_of_workers(tally: Tally, block: Block) -> WorkerTimes | None:
    makers, totals = tally.list_makers(), tally.sum_counters()
    if not makers or not totals["batches"]:
        return None
    return WorkerTimes(
        block.rung,
        block.rank,
        block.round,
        tuple(each["batches"] for each in makers),
        tuple(each["making_ns"] * 1e-9 for each in makers),
        tuple(totals[name] for name in TOOK),
        totals["threads"] / totals["looked"] if totals["looked"] else None,
    )


class Supply:
    """Sets this rank's feeds to what a block is to get; ``on_device``: a rung replays from the device.

    The data blocks read their batches from the script's loaders. Replays get copies, made once a round in a pass that
    is not timed; the same pass brings into memory what a warm block reads, if no cold block has. So what differs
    between two rungs is never what they trained on.
    """

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

    def gather_batches(self, visit: Visit, number: int, plan: Plan) -> None:
        """Before a block of a round that goes by ``plan``: what replays and warm blocks need is in memory.

        Collective over all ranks, those that sit the block out too: none may begin while another still reads.
        """
        self._plan = plan
        rank = self._rank
        if number != self._round:
            self._round, self._read, self._kept = number, False, False
            for feed in rank.feeds:
                feed.begin_round(self._batches_between(number, feed))
        if visit.feed == "cold":
            self._read = True
        elif not self._kept:
            self._kept = True
            for feed in rank.feeds:
                self._refill_feed(feed)
            # as steps take them
            kept = [batch for feed in rank.feeds for batch in feed.ring.batches]
            is_first = number == rank.orders.first_round
            sizes = [*map(batches.count_bytes, kept)] if is_first else []
            rank.agree(sizes, self._note_uneven)

    def _batches_between(self, number: int, feed: Feed) -> int:
        """Batches of no round before this one, by chance and alike on all ranks, no more than a round has.

        Batches may take turns, as those of sorted lengths or of several sources do: rounds that follow each other
        closely could all begin in the same place of such a turn, and would measure the same kinds of batches.
        """
        return Random(number).randrange(1 + self._plan.cold.total_steps * feed.per_step)

    def serve_block(self, visit: Visit) -> None:
        """Every feed of this rank hands out the block's batches from now on; its queue must be drained."""
        size = self._plan.block_size(visit)
        for feed in self._rank.feeds:
            count, first, device = _count_batches(size, feed), self._first_batch(size, feed), None
            if visit.reads_data:
                count += feed.depth
            else:
                before = visit.lead_in * feed.per_step
                count, first = count + before, first - self._kept_from(feed) - before
                device = self._device if visit.feed == "resident" else None
            feed.begin(visit.feed, count, first, device)

    def _refill_feed(self, feed: Feed) -> None:
        plan = self._plan
        first, warm = self._kept_from(feed), self._first_batch(plan.data, feed)
        replayed = range(first, first + _count_batches(plan.replay, feed))
        of_warm = range(min(first, warm), warm + _count_batches(plan.data, feed) + feed.depth)
        feed.refill(replayed if self._read else of_warm, replayed, self._device)

    def _note_uneven(self, reports: list[list[int]]) -> None:
        """The leader's part: ranks wait for each other as soon as they exchange, and so for the largest batch."""
        steps = list(zip(*reports, strict=False))
        together = sum(map(sum, steps))
        excess = sum(map(max, steps)) * len(reports) / together - 1 if together else 0.0
        if excess > _UNEVEN:
            self._rank.note(
                f"the ranks' batches differ: the largest of a step has {1 + excess:.2f} times their mean size, and "
                "waiting for the rank that it keeps longest is contention"
            )

    def _first_batch(self, size: BlockSize, feed: Feed) -> int:
        """Where a block begins in the round's batches, so that measured steps are of the same ones in all blocks.

        Cold blocks, which may have the longest way to settle, begin at the first. Below zero if others take longer.
        """
        return (self._plan.cold.settle - size.settle) * feed.per_step

    def _kept_from(self, feed: Feed) -> int:
        """The first of the round's batches that is kept for replays."""
        return max(0, self._first_batch(self._plan.replay, feed))


def _count_batches(size: BlockSize, feed: Feed) -> int:
    """A block's batches, and one more of a loop that reads a batch ahead."""
    return size.total_steps * feed.per_step + 1
