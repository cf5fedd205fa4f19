"""Running one block: settle, time the steps, read the counters, and agree with the other ranks what is next."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from dataclasses import dataclass, field, replace

from stash.base.ladder import Visit, round_of_visits
from stash.measure.agent.climb import alone, coldness, proof, sustained
from stash.measure.agent.climb.loops import Loops
from stash.measure.agent.climb.plan import Plan, StepPace, plan
from stash.measure.agent.climb.proof import Testimony
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.climb.sizes import BlockSize
from stash.measure.agent.data.tally import COLD, IDLE, WARM, Tally, own_seconds, own_tally
from stash.measure.linux import counters
from stash.measure.run.messages import BlockDone, PhaseBegun, RoundsPlanned, RungSkipped
from stash.measure.run.orders import Orders

_MODES = {"warm": WARM, "cold": COLD}


@dataclass(frozen=True)
class BlockReport:
    """What a rank hands in after a block."""

    block: BlockDone
    testimony: Testimony = field(default_factory=Testimony)
    """Of a data block: what it read, and from where."""


@dataclass(frozen=True)
class Outcome:
    """What the leader decided after a block: stop here, leave a rung out from now on, or run the block again."""

    stop: bool = False
    drop: str | None = None
    again: bool = False
    cold: BlockSize | None = None
    """The size of cold blocks from now on, if it changes."""


class BlockRunner:
    """Runs the visits of a round on this rank; ``step_seconds`` sizes the blocks."""

    def __init__(self, rank: OwnRank, loops: Loops, step_seconds: float) -> None:
        self.rank, self._loops = rank, loops
        self._step_seconds = step_seconds
        self._began = 0.0
        self._plan: Plan
        self._sweeping = False
        """The cold block is tried a second time, or was."""
        self._after_warm: Visit | None = None
        self._cold: list[Testimony] = []
        """Of the round's cold block; none where there was none."""
        self._credit_told = self._reading_told = False

    def start(self, rungs: tuple[str, ...]) -> None:
        """Size the blocks of rounds of these rungs, the same on every rank; the run's clock starts."""
        rank = self.rank
        visits = round_of_visits(rungs, 0, rank.place.world_size)
        workers = max((feed.workers for feed in rank.feeds), default=0)
        per_step = max((feed.per_step for feed in rank.feeds), default=1)
        own = StepPace(self._step_seconds, workers, per_step, rank.device.type != "cpu")

        def decide(reports: list[StepPace]) -> Plan:
            slowest = StepPace(
                step_seconds=max(pace.step_seconds for pace in reports),
                workers=max(pace.workers for pace in reports),
                batches_per_step=max(pace.batches_per_step for pace in reports),
                accelerator=own.accelerator,
            )
            return plan(visits, slowest, rank.orders.budget, rank.orders.most_steps)

        self._plan = rank.agree(own, decide)
        self._began = rank.clock.settled()
        rank.tell(PhaseBegun("blocks"))
        rank.tell(RoundsPlanned(self._plan.round_seconds))

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self.rank
        rank.tell(PhaseBegun(visit.rung, number))
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        report = (yield from self._run(visit, number)) if takes_part else None
        outcome = rank.agree(report, lambda reports: self._decide(visit, number, reports))
        if outcome.cold is not None:
            self._plan = replace(self._plan, cold=outcome.cold)
        if outcome.again:
            self._sweeping = self._sweeping or outcome.cold is None
            return (yield from self.visit(visit, number))
        if not outcome.stop and outcome.drop is None and number < rank.orders.first_round + self._plan.alone_rounds:
            self._alone(visit, number)
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, BlockReport]:
        rank = self.rank
        size = self._plan.size(visit)
        if rank.switches:
            rank.set_scope(visit.scope)
        tally = own_tally()
        self._prepare(visit, size.together, tally)
        muster(rank.orders, f"{number}.{visit.rung}")
        for _ in range(size.settle):
            yield
        for feed in rank.feeds:
            feed.ring.judge()
        waits = sum(feed.wait for feed in rank.feeds)
        served = [sum(feed.samples for feed in rank.feeds)]
        own = [own_seconds(tally)]
        before = counters.totals()
        clock = self._loops.begin_block()
        for index in range(size.steps):
            yield
            now = rank.clock.now() if index < size.steps - 1 else rank.clock.settled()
            own.append(own_seconds(tally))
            clock.step(now, self._loops.between, own[-1] - own[-2])
            served.append(sum(feed.samples for feed in rank.feeds))
        self._loops.clock = None
        machine = counters.since(before)
        block = BlockDone(
            round=number, rung=visit.rung, rank=rank.place.rank, steps=size.steps,
            seconds=sum(clock.steps), step_seconds=tuple(clock.steps), interrupted_seconds=clock.interrupted,
            started=clock.started - self._began, launch=rank.orders.launch,
            gpu=counters.gpu_utilisation(rank.clock.gpu), cpu=machine.cpu, steal=machine.steal,
            network_bytes=machine.network_bytes, disk_bytes=machine.disk_bytes,
        )  # fmt: skip
        if rank.feeds:
            waited = sum(feed.wait for feed in rank.feeds) - waits - (own[-1] - own[0])
            block = replace(block, wait_seconds=waited)
        if rank.feeds and not any(feed.uncounted for feed in rank.feeds):
            each = tuple(after - before for before, after in itertools.pairwise(served))
            block = replace(block, samples=sum(each) or None, step_samples=each)
        return self._drained(tally, block) if visit.reads_data else BlockReport(block)

    def _prepare(self, visit: Visit, steps: int, tally: Tally | None) -> None:
        """Set every loader to the block's feed; a data block starts with empty queues and fresh counters."""
        feeds = self.rank.feeds
        wanted = [steps * feed.per_step + feed.depth + 1 for feed in feeds]
        for feed, count in zip(feeds, wanted, strict=True):
            feed.drain()
            if visit.feed == "warm" and not feed.remembers:  # no cold block read these samples before
                feed.begin("warm", count, again=False)
                feed.consume(count)
                feed.drain()
        if visit.reads_data and tally is not None:
            coldness.begin(self.rank, tally, _MODES[visit.feed], self._sweeping)
        for feed, count in zip(feeds, wanted, strict=True):
            feed.begin(visit.feed, count, again=visit.feed == "warm")

    def _drained(self, tally: Tally | None, block: BlockDone) -> BlockReport:
        """Empty the queues, untimed, and add what the loader's processes counted over the whole block."""
        for feed in self.rank.feeds:
            feed.drain()
        if tally is None:
            return BlockReport(block)
        totals, found = tally.totals(), proof.testimony(tally)
        tally.set_mode(IDLE)
        if totals["batches"] == 0:
            return BlockReport(block, found)
        made = block.steps * sum(feed.per_step for feed in self.rank.feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        looked = made / totals["looked"] if totals["looked"] else 0.0  # of those whose files were looked at
        block = replace(
            block,
            fetch_seconds=totals["making_ns"] * 1e-9 * share,
            resident=found.resident / found.pages if found.pages else None,
            files=round(totals["files"] * looked),
            file_bytes=round(totals["bytes"] * looked),
            storage_bytes=None if found.storage is None else round(found.storage * share),
            read_bytes=None if found.called is None else round(found.called * share),
        )
        return BlockReport(block, found)

    def _decide(self, visit: Visit, number: int, reports: list[BlockReport | None]) -> Outcome:
        """The leader's part: write the block down, look whether to stop and whether the block was what it claims."""
        rank = self.rank
        done = [report for report in reports if report is not None]
        why = self._disproved(visit, [report.testimony for report in done])
        cold = self._lengthened(done) if visit.feed == "cold" and why is None else None
        stop, first = rank.orders.files.stop.exists(), number == rank.orders.first_round
        better = cold is not None or (why is not None and visit.feed == "cold" and self._teaches(done))
        again = first and better and not stop
        if visit.measured and not again:
            for report in done:
                rank.tell(report.block)
        drop = "cold" if why is not None and not again else None
        if drop is not None:
            rank.tell(RungSkipped(drop, str(why)))
        return Outcome(stop=stop, drop=drop, again=again, cold=cold)

    def _disproved(self, visit: Visit, ranks: list[Testimony]) -> str | None:
        """Why ``fetch`` cannot be told any more: this block was not cold, or it was to be warm and was not."""
        if visit.feed == "cold":
            self._cold = ranks
            return proof.why_not_cold(ranks)
        if visit.feed != "warm":
            return None
        why = proof.why_not_warm(ranks, self._cold)
        if why is not None and not self._reading_told:
            self._reading_told = True
            self.rank.note(f"prep contains reading from storage: in a warm block {why}")
        compared = bool(self._cold) or self.rank.orders.isolated  # else nobody tells fetch anyway
        self._cold = []
        return why if compared else None

    def _teaches(self, done: list[BlockReport]) -> bool:
        """Whether this attempt told which files hold many samples; of a folder's, all are dropped from now on."""
        seen = any(report.testimony.pages for report in done)
        return not self._sweeping and (seen or bool(self.rank.orders.data_root))

    def _lengthened(self, done: list[BlockReport]) -> BlockSize | None:
        """The size of cold blocks from now on, if this one was too short; what storage lent is noted."""
        orders, size = self.rank.orders, self._plan.cold
        slowest = max((report.block for report in done), key=lambda block: block.seconds)
        seen = sustained.halves(slowest.step_seconds)
        if seen is None:
            return None
        better = sustained.better(size, seen, self._plan.data, orders.budget, orders.most_steps)
        if seen.on_credit and not self._credit_told:
            self._credit_told = True
            self.rank.note(sustained.remark(seen, lengthened=better != size))
        return better if better != size else None

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


def muster(orders: Orders, label: str, patience: float = 120.0) -> None:
    """Wait until all launches that run side by side have come to the same block."""
    if orders.crowd == 1 or orders.gang is None:
        return
    orders.files.muster(orders.launch, label, orders.gang[0]).touch()
    everybody = orders.files.muster(orders.launch, label, "*")
    deadline = time.monotonic() + patience
    while len(list(everybody.parent.glob(everybody.name))) < orders.crowd and time.monotonic() < deadline:
        time.sleep(0.005)
