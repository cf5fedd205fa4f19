"""Running one block: settle, time the steps, read the counters, and agree with the other ranks what is next."""

from __future__ import annotations

import itertools
import time
from collections.abc import Generator
from dataclasses import dataclass, replace

from stash.base.ladder import Visit, round_of_visits
from stash.measure.agent.climb import alone, coldness
from stash.measure.agent.climb.loops import Loops
from stash.measure.agent.climb.plan import Plan, StepPace, plan
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.climb.supply import Supply
from stash.measure.agent.data.tally import COLD, IDLE, WARM, Tally, own_tally
from stash.measure.linux import counters
from stash.measure.run.messages import BlockDone, PhaseBegun, RoundsPlanned, RungSkipped
from stash.measure.run.orders import Orders

_COLD_ENOUGH = 0.1
_MODES = {"warm": WARM, "cold": COLD}


@dataclass(frozen=True)
class Outcome:
    """What the leader decided after a block: stop here, leave a rung out from now on, or run the block again."""

    stop: bool = False
    drop: str | None = None
    again: bool = False


class BlockRunner:
    """Runs the visits of a round on this rank; ``step_seconds`` sizes the blocks."""

    def __init__(self, rank: OwnRank, loops: Loops, step_seconds: float) -> None:
        self.rank, self._loops = rank, loops
        self._step_seconds = step_seconds
        self._began = 0.0
        self._plan: Plan
        self._supply: Supply
        self._sweeping = False
        """The cold block is tried a second time, or was."""
        self._after_warm: Visit | None = None

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
        self._supply = Supply(rank, self._plan, on_device="resident" in rungs)
        self._began = rank.clock.settled()
        rank.tell(PhaseBegun("blocks"))
        rank.tell(RoundsPlanned(self._plan.round_seconds))

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self.rank
        rank.tell(PhaseBegun(visit.rung, number))
        self._supply.gather(visit, number)
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        report = (yield from self._run(visit, number)) if takes_part else None
        outcome = rank.agree(report, lambda reports: self._decide(visit, number, reports))
        if outcome.again:
            self._sweeping = True
            return (yield from self.visit(visit, number))
        if not outcome.stop and outcome.drop is None and number < rank.orders.first_round + self._plan.alone_rounds:
            self._alone(visit, number)
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, BlockDone]:
        rank = self.rank
        size = self._plan.size(visit)
        if rank.switches:
            rank.set_scope(visit.scope)
        tally = own_tally()
        self._prepare(visit, tally)
        muster(rank.orders, f"{number}.{visit.rung}")
        for _ in range(size.settle):
            yield
        waits = sum(feed.wait for feed in rank.feeds)
        served = [sum(feed.samples for feed in rank.feeds)]
        before = counters.totals()
        clock = self._loops.begin_block()
        for index in range(size.steps):
            yield
            clock.step(rank.clock.now() if index < size.steps - 1 else rank.clock.settled(), self._loops.between)
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
            waited = sum(feed.wait for feed in rank.feeds) - waits
            block = replace(block, wait_seconds=waited)
        if rank.feeds and not any(feed.uncounted for feed in rank.feeds):
            each = tuple(after - before for before, after in itertools.pairwise(served))
            block = replace(block, samples=sum(each) or None, step_samples=each)
        return self._drained(tally, block) if visit.reads_data else block

    def _prepare(self, visit: Visit, tally: Tally | None) -> None:
        """Set every loader to the block's feed; a data block starts with empty queues and fresh counters."""
        for feed in self.rank.feeds:
            feed.drain()
        if visit.reads_data and tally is not None:
            coldness.begin(self.rank, tally, _MODES[visit.feed], self._sweeping)
        self._supply.serve(visit)

    def _drained(self, tally: Tally | None, block: BlockDone) -> BlockDone:
        """Empty the queues, untimed, and add what the loader's processes counted over the whole block."""
        for feed in self.rank.feeds:
            feed.drain()
        if tally is None:
            return block
        totals = tally.totals()
        tally.set_mode(IDLE)
        if totals["batches"] == 0:
            return block
        made = block.steps * sum(feed.per_step for feed in self.rank.feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        return replace(
            block,
            fetch_seconds=totals["making_ns"] * 1e-9 * share,
            resident=totals["resident"] / totals["pages"] if totals["pages"] else None,
            files=round(totals["files"] * share),
            file_bytes=round(totals["bytes"] * share),
            storage_bytes=round(totals["storage"] * share),
            held_bytes=totals["held"],
        )

    def _decide(self, visit: Visit, number: int, reports: list[BlockDone | None]) -> Outcome:
        """The leader's part: write the block down, look whether to stop and whether a cold block was cold."""
        rank = self.rank
        done = [report for report in reports if report is not None]
        again = False
        drop = None
        if visit.rung == "cold" and number == rank.orders.first_round:
            why = _not_cold(done)
            # The first attempt taught which files hold many samples; of a folder's, all are dropped now.
            seen = any(report.resident is not None for report in done)
            again = why is not None and not self._sweeping and (seen or bool(rank.orders.data_root))
            drop = None if again else why
        if visit.measured and not again:
            for report in done:
                rank.tell(report)
        if drop is not None:
            rank.tell(RungSkipped("cold", drop))
        return Outcome(stop=rank.orders.files.stop.exists(), drop="cold" if drop else None, again=again)

    def _alone(self, visit: Visit, number: int) -> None:
        """In the first rounds: the loader by itself (rates P and F), and the exchange by itself."""
        if visit.feed == "cold" and "warm" in self.rank.orders.rungs:
            self._after_warm = visit  # by itself it would empty the cache of what the warm block is about to read
        elif visit.reads_data:
            for each in filter(None, (visit, self._after_warm)):
                alone.time_loader(self.rank, each, number, _MODES[each.feed], self._sweeping)
            self._after_warm = None
        elif visit.scope != "self":
            alone.time_exchange(self.rank, visit)


def _not_cold(blocks: list[BlockDone]) -> str | None:
    """Why this cold block proves nothing, or None if its files were out of the page cache."""
    known = [block.resident for block in blocks if block.resident is not None]
    if not known:
        return (
            "no file was seen being read by the loader (data in memory, an object store, or C code "
            "that opens files itself: then pass --data-root)"
        )
    worst = max(known)
    if worst > _COLD_ENOUGH:
        return f"{worst:.0%} of the pages stayed in memory after eviction (a RAM disk, or other processes map them?)"
    return None


def muster(orders: Orders, label: str, patience: float = 120.0) -> None:
    """Wait until all launches that run side by side have come to the same block."""
    if orders.crowd == 1 or orders.gang is None:
        return
    orders.files.muster(orders.launch, label, orders.gang[0]).touch()
    everybody = orders.files.muster(orders.launch, label, "*")
    deadline = time.monotonic() + patience
    while len(list(everybody.parent.glob(everybody.name))) < orders.crowd and time.monotonic() < deadline:
        time.sleep(0.005)
