"""Run the blocks of a round: supply their batches, settle, time steps, read counters, agree on what is next.

All blocks of a round train on the same batches, step for step; every round draws others. What a block adds up to
(``timed_steps``), whether it was what it claims (``judge``) and how long it is (``block_plan``) others know. Second
opinions are taken while no rank trains: blocks tell what a stall costs a step; the loaders by themselves, and the
gradient exchange by itself, what a loader or a network can do.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any

from stash.core.ladder import Visit, round_of_visits
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.tally import COLD, IDLE, WARM, Tally, own_seconds, own_tally
from stash.measure.agent.runner.block_plan import (
    EXCHANGES_ALONE,
    MAX_STEPS,
    BlockSize,
    Plan,
    StepPace,
    plan,
    slowest,
)
from stash.measure.agent.runner.judge import BlockReport, CacheEvidence, Judge, Outcome, begin_data_block, evidence_of
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.parallelism import group_names, stage_layers
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import MemoryWatch, timed
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope
from stash.measure.agent.wraps.waits import ledger
from stash.measure.protocol.messages import (
    BlockDone,
    ExchangeTimed,
    LoaderTimed,
    Message,
    PassesTimed,
    Payload,
    PhaseBegun,
    RoundsPlanned,
    WorkersTimed,
)
from stash.measure.protocol.orders import Orders

_MODES = {"warm": WARM, "cold": COLD}
_MAX_PASSES = 400
"""Of a block of one rank, that are written down, or those of one step."""
_PASSES_OF_ROUNDS = 5
_UNEVEN = 0.05
"""By how much the largest batch of a step may exceed the mean of all ranks without a word."""
_PARTS = 4
"""Of the timing of a loader: as many as tell its spread."""
_MIN_SECONDS = 0.03
"""Of such a part."""
_MAX_STEPS = 1024
_MIN_BYTES = 4
"""Of a bucket that tells what an all-reduce takes whatever its size: one number."""


class BlockRunner:
    """Runs the visits of rounds of ``rungs`` on this rank; ``step_seconds`` sizes the blocks, alike on every rank."""

    def __init__(self, rank: OwnRank, loops: Loops, step_seconds: float, rungs: tuple[str, ...]) -> None:
        self._rank, self._loops = rank, loops
        visits = round_of_visits(rungs, 0, rank.place.world_size)
        own = StepPace(
            step_seconds=step_seconds,
            workers=max((feed.workers for feed in rank.feeds), default=0),
            batches_per_step=max((feed.per_step for feed in rank.feeds), default=1),
            accelerator=rank.device.type != "cpu",
            reads_ahead=any(feed.reads_ahead for feed in rank.feeds),
            agreement_seconds=_agreement_seconds(rank),
            reading_seconds=max((feed.wait_of_a_step for feed in rank.feeds), default=0.0),
            ahead=max((feed.depth // feed.per_step for feed in rank.feeds), default=0),
        )
        self._plan = self._learned = rank.agree(
            own, lambda paces: plan(visits, slowest(paces), rank.orders.budget, rank.orders.most_steps)
        )
        """In this round, and what holds from the next one on."""
        self._round: int | None = None
        self._supply = Supply(rank, on_device="resident" in rungs)
        self._judge = Judge(rank, self._plan)
        self._memory = MemoryWatch(rank)
        self._sweeping = False
        """All files known to hold many samples are dropped before a cold block."""
        self.took = 0.0
        """Seconds of the round's blocks so far, without second opinions and blocks that were run again."""
        self._read_alone = False
        """In this round loaders were timed by themselves."""
        self._after_warm: Visit | None = None
        """A cold one whose second opinion has to wait."""
        self._layers: tuple[int, ...] = ()
        if rank.place.world_size > 1:  # not beside steps: all objects are looked through
            ledger.names, self._layers = group_names(), stage_layers()
        self._began = rank.clock.settled()
        rank.publish(PhaseBegun("blocks"))
        rank.publish(RoundsPlanned(self._plan.expected_seconds))

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self._rank
        rank.publish(PhaseBegun(visit.rung, number))
        came = rank.clock.now()
        if number != self._round:
            self._round, self._plan, self.took = number, self._learned, 0.0
            if self._read_alone:
                self._plan = self._plan.after_reading_alone(rank.orders.most_steps or MAX_STEPS)
            self._read_alone = False
        self._supply.gather(visit, number, self._plan)
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        began = rank.clock.now()
        report = (yield from self._run(visit, number)) if takes_part else None
        step = (rank.clock.now() - began) / (visit.lead_in + self._plan.size(visit).together)
        took = self.took + rank.clock.now() - came
        outcome = rank.agree(report, lambda reports: self._judge.decide(visit, number, reports, step, took))
        self._learned = outcome.plan or self._learned
        if outcome.again:
            self._plan, self._sweeping = self._learned, self._sweeping or outcome.sweep
            return (yield from self.visit(visit, number))
        self.took = took
        if visit.measured:
            self._memory.written_down()
        if outcome.alone:
            self._alone(visit, number)
            self._read_alone |= visit.reads_data
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, BlockReport]:
        rank = self._rank
        size = self._plan.size(visit)
        if rank.switches:
            rank.set_scope(visit.scope)
        tally = own_tally()
        for feed in rank.feeds:
            feed.drain()
        if visit.reads_data and tally is not None:  # with empty queues and fresh counters
            begin_data_block(rank, tally, _MODES[visit.feed], self._sweeping)
        self._supply.serve(visit)
        barrier(rank.orders, f"{number}.{visit.rung}")
        for _ in range(visit.lead_in + size.settle):
            yield
        if visit.rung != "resident":
            self._memory.begin()
        block = yield from timed(rank, self._loops, visit.rung, number, size.steps, self._began)
        beside: list[Message | None] = [] if visit.rung == "resident" else [self._memory.end()]
        if visit.feed == "replay":
            beside.append(_passes(block, self._layers))
        return self._drained(tally, block, beside) if visit.reads_data else _report(block, beside)

    def _drained(self, tally: Tally | None, block: BlockDone, beside: Sequence[Message | None]) -> BlockReport:
        """Empty the queues, untimed, and add what the loader's processes counted over the whole block."""
        for feed in self._rank.feeds:
            feed.drain()
        if tally is None:
            return _report(block, beside)
        totals, found = tally.totals(), evidence_of(tally)
        workers_took = _times_of_workers(tally, block) if self._rank.leads else None
        tally.set_mode(IDLE)
        if totals["batches"] == 0:
            return _report(block, beside, found)
        made = block.steps * sum(feed.per_step for feed in self._rank.feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        looked = made / totals["looked"] if totals["looked"] else 0.0  # of those whose files were looked at
        making = totals["making_ns"] * 1e-9 * share
        workers = sum(feed.workers for feed in self._rank.feeds)
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
        if visit.feed == "cold" and "warm" in self._rank.orders.rungs:
            self._after_warm = visit  # by itself it would empty the cache of what the warm block is about to read
        elif visit.reads_data:
            for each in filter(None, (visit, self._after_warm)):
                time_loader(self._rank, each, number, _MODES[each.feed], self._sweeping, self._plan)
            self._after_warm = None
        elif visit.scope != "self":
            time_exchange(self._rank, visit)


def _passes(block: BlockDone, layers: tuple[int, ...]) -> PassesTimed | None:
    """What a rank's stages of a pipeline did in some steps of the block; ``None`` without a pipeline."""
    steps = ledger.seen.passes
    if not steps or block.round >= _PASSES_OF_ROUNDS:
        return None
    named = [["rest" if at is None else f"{at[0]}{at[1]}{at[2]}" for at, _ in step] for step in steps]
    alike = [step for step, names in zip(steps, named, strict=True) if names == named[0]]
    kept = alike[: max(1, _MAX_PASSES // len(named[0]))]
    seconds = tuple(seconds for step in kept for _, seconds in step)
    return PassesTimed(block.rank, block.round, block.rung, tuple(named[0]), seconds, layers)


def _report(
    block: BlockDone,
    beside: Sequence[Message | None],
    evidence: CacheEvidence | None = None,
    busy: float | None = None,
) -> BlockReport:
    others = tuple(Payload.of(message) for message in beside if message is not None)
    return BlockReport(Payload.of(block), block.seconds, evidence or CacheEvidence(), busy, others)


def _times_of_workers(tally: Tally, block: BlockDone) -> WorkersTimed | None:
    makers = tally.makers()
    if not makers:
        return None
    made, seconds = tuple(each["batches"] for each in makers), tuple(each["making_ns"] * 1e-9 for each in makers)
    return WorkersTimed(block.rung, block.rank, block.round, made, seconds)


def _agreement_seconds(rank: OwnRank) -> float:
    """What ranks need to agree on something, once all are there."""
    rank.agree(None, lambda reports: None)
    began = time.perf_counter()
    rank.agree(None, lambda reports: None)
    return time.perf_counter() - began


def barrier(orders: Orders, label: str, seconds: float = 120.0) -> None:
    """Wait until all launches that run side by side have come to the same block."""
    if orders.crowd == 1 or orders.gang is None:
        return
    orders.files.barrier(orders.launch, label, orders.gang[0]).touch()
    everyone = orders.files.barrier(orders.launch, label, "*")
    deadline = time.monotonic() + seconds
    while len(list(everyone.parent.glob(everyone.name))) < orders.crowd and time.monotonic() < deadline:
        time.sleep(0.005)


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
            kept = [batch for feed in self._rank.feeds for batch in feed.ring.kept]  # as steps take them
            first = number == self._rank.orders.first_round
            self._rank.agree([batches.size(batch) for batch in kept] if first else [], self._compare)

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


def time_loader(rank: OwnRank, visit: Visit, number: int, mode: int, sweeping: bool, plan: Plan) -> None:
    """Time how fast the loaders of every rank deliver when no training waits for them; the tally counts in ``mode``.

    As much runs in as in a block of ``plan``: what reads on credit at first does so here too.
    """
    feeds, tally = rank.feeds, own_tally()
    size = plan.reading_alone(visit, max(feed.workers for feed in feeds))
    for feed in feeds:
        feed.drain()
    if tally is not None:
        begin_data_block(rank, tally, mode, sweeping)
    for feed in feeds:
        feed.begin(visit.feed, size.together * feed.per_step + feed.depth)
    _consume(feeds, size.settle)
    samples, parts = _timed(rank, feeds, size.steps, tally)
    for feed in feeds:
        feed.drain()
    if tally is not None:
        tally.set_mode(IDLE)

    # a batch that cannot be counted has no rate, rather than one of zero
    seconds = sum(parts)
    own = (
        LoaderTimed(visit.feed, rank.place.rank, number, samples, seconds, parts)
        if samples and seconds >= 0
        else None
    )
    rank.agree(own, lambda reports: rank.publish(*(report for report in reports if report is not None)))


def _timed(rank: OwnRank, feeds: list[Feed], steps: int, tally: Tally | None) -> tuple[int, tuple[float, ...]]:
    """Samples read in parts of as many steps each, and the seconds of each part.

    A stream may hand out at once what it has ready, and then work for long: parts are doubled until one takes long
    enough to tell a rate, and are repeated until they tell its spread, or took long enough without one.
    """
    samples, parts = 0, list[float]()
    while len(parts) < _PARTS and sum(parts) < _PARTS * _MIN_SECONDS:
        began = rank.clock.now() - own_seconds(tally)
        read = _consume(feeds, steps)
        seconds = rank.clock.now() - own_seconds(tally) - began
        if read and seconds < _MIN_SECONDS and not parts and steps < _MAX_STEPS:
            steps *= 2
        else:
            samples, parts = samples + read, [*parts, seconds]
        if not read:
            break
        for feed in feeds:
            feed.ask_for(steps * feed.per_step)
    return samples, tuple(parts)


def _consume(feeds: list[Feed], steps: int) -> int:
    """Read what ``steps`` steps would from all training loaders; the value counts samples."""
    return sum(feed.consume(feed.per_step) for _ in range(steps) for feed in feeds)


def time_exchange(rank: OwnRank, visit: Visit) -> None:
    """Time a step's gradients' exchange, in the scope in force, when nothing else goes on: the slowest rank's."""
    sizes, _ = replicas.gradient_facts()
    if not sizes:
        return
    group = replicas.group_in_scope(replicas.modules()[0])
    empty = [_MIN_BYTES] * len(sizes)
    whole = [0.0 if group is None else _all_reduce(sizes, rank, group) for _ in range(EXCHANGES_ALONE)]
    latency = [0.0 if group is None else _all_reduce(empty, rank, group) for _ in range(EXCHANGES_ALONE)]

    def write(reports: list[tuple[int, list[float], list[float]]]) -> None:
        ranks = max(size for size, _, _ in reports)
        slowest, least = ([max(each) for each in zip(*(r[i] for r in reports), strict=True)] for i in (1, 2))
        for seconds, without_bytes in list(zip(slowest, least, strict=True))[1:]:
            if ranks > 1:
                rank.publish(ExchangeTimed(visit.scope, ranks, sum(sizes), seconds, without_bytes))

    rank.agree((1 if group is None else group.size(), whole, latency), write)


def _all_reduce(sizes: list[int], rank: OwnRank, group: Any) -> float:
    """Seconds for one all-reduce of every gradient bucket, in order, with nothing else going on."""
    import torch
    import torch.distributed as dist

    whole = torch.zeros(max(sizes) // 4, dtype=torch.float32, device=rank.device)
    # One buffer serves all buckets where a stream serialises them; gloo reduces several at once.
    on_stream = rank.device.type != "cpu"
    buckets = [whole[: size // 4] if on_stream else torch.zeros_like(whole[: size // 4]) for size in sizes]
    with scope.untouched():
        dist.all_reduce(torch.zeros(1, device=rank.device), group=group)
        began = rank.clock.settled()
        works: list[Any] = [dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets]
        for work in works:
            work.wait()
        return rank.clock.settled() - began
