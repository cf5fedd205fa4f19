"""Running one block: settle, time the steps, read the counters, and agree with the other ranks what is next."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from stash.base.ladder import Visit
from stash.measure.agent.climb import alone, coldness
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.data.tally import COLD, IDLE, WARM, Tally, own_tally
from stash.measure.linux import counters
from stash.measure.run.messages import BlockDone, PhaseBegun, RungSkipped
from stash.measure.run.orders import Orders

_BLOCK_SECONDS = (0.2, 2.0)
_MOST_STEPS = 50
_ALONE_ROUNDS = 2
_COLD_ENOUGH = 0.1
_MODES = {"warm": WARM, "cold": COLD}


@dataclass(frozen=True)
class Outcome:
    """What the leader decided after a block: stop here, leave a rung out from now on, or run the block again."""

    stop: bool = False
    drop: str | None = None
    again: bool = False


class BlockClock:
    """A block under way: its clock readings, less what was not training."""

    def __init__(self, started: float) -> None:
        self.started = self._last = started
        self.steps: list[float] = []
        self.interrupted = 0.0
        self._in_step = 0.0
        self._since: float | None = None

    def interrupt(self, now: float) -> None:
        """Something other than training begins (a validation loop)."""
        if self._since is None:
            self._since = now

    def resume(self, now: float) -> None:
        """Training goes on."""
        if self._since is not None:
            self._in_step += now - self._since
            self._since = None

    def step(self, now: float) -> None:
        """A step ended."""
        self.resume(now)
        self.steps.append(now - self._last - self._in_step)
        self.interrupted += self._in_step
        self._in_step, self._last = 0.0, now


class BlockRunner:
    """Runs the visits of a round on this rank; ``step_seconds`` sizes the blocks."""

    def __init__(self, rank: OwnRank, step_seconds: float) -> None:
        self.rank = rank
        self.clock: BlockClock | None = None
        """Of the block under way."""
        self._step_seconds = step_seconds
        self._began = 0.0
        self._sizes: dict[str, tuple[int, int]] = {}
        self._sweeping = False
        """The cold block is tried a second time, or was."""
        self._after_warm: Visit | None = None

    def start(self) -> None:
        """Size the blocks, the same on every rank; the run's clock starts."""
        rank = self.rank
        target = min(max(rank.orders.budget / 120, _BLOCK_SECONDS[0]), _BLOCK_SECONDS[1])
        workers = max((feed.workers for feed in rank.feeds), default=0)
        per_step = max((feed.per_step for feed in rank.feeds), default=1)
        most = rank.orders.most_steps or _MOST_STEPS

        def size(reports: list[Any]) -> dict[str, tuple[int, int]]:
            slowest, most_workers, micro = (max(r[i] for r in reports) for i in range(3))
            steps = min(max(2 if slowest < 0.25 else 1, round(target / slowest)), most)
            settle = 1 if rank.device.type == "cpu" else 2
            # Workers started together deliver together: measure whole bursts, after the first one.
            burst = max(1, math.ceil(min(most_workers, 8, most) / micro))
            data = max(1, round(steps / burst)) * burst
            return {"replay": (settle, steps), "data": (max(settle, burst), data)}

        self._sizes = rank.agree((self._step_seconds, workers, per_step), size)
        self._began = rank.clock.settled()
        rank.tell(PhaseBegun("blocks"))

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        rank = self.rank
        rank.tell(PhaseBegun(visit.rung, number))
        takes_part = visit.active == "all" or rank.leads == (visit.active == "leader")
        report = (yield from self._run(visit, number)) if takes_part else None
        outcome = rank.agree(report, lambda reports: self._decide(visit, number, reports))
        if outcome.again:
            self._sweeping = True
            return (yield from self.visit(visit, number))
        if not outcome.stop and outcome.drop is None and number < rank.orders.first_round + _ALONE_ROUNDS:
            self._alone(visit, number)
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, BlockDone]:
        rank = self.rank
        data = visit.feed in _MODES
        settle, steps = self._sizes["data" if data else "replay"]
        if rank.switches:
            rank.set_scope(visit.scope)
        tally = own_tally()
        self._prepare(visit, settle + steps, tally)
        muster(rank.orders, f"{number}.{visit.rung}")
        for _ in range(settle):
            yield
        for feed in rank.feeds:
            feed.ring.judge()
        waits = sum(feed.wait for feed in rank.feeds)
        served = [sum(feed.samples for feed in rank.feeds)]
        before = counters.totals()
        clock = self.clock = BlockClock(rank.clock.settled())
        for index in range(steps):
            yield
            clock.step(rank.clock.now() if index < steps - 1 else rank.clock.settled())
            served.append(sum(feed.samples for feed in rank.feeds))
        self.clock = None
        machine = counters.since(before)
        block = BlockDone(
            round=number, rung=visit.rung, rank=rank.place.rank, steps=steps,
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
        return self._drained(tally, block) if data else block

    def _prepare(self, visit: Visit, steps: int, tally: Tally | None) -> None:
        """Set every loader to the block's feed; a data block starts with empty queues and fresh counters."""
        feeds, data = self.rank.feeds, visit.feed in _MODES
        wanted = [steps * feed.per_step + feed.depth + 1 for feed in feeds]
        for feed, count in zip(feeds, wanted, strict=True):
            feed.drain()
            if visit.feed == "warm" and not feed.remembers:  # no cold block read these samples before
                feed.begin("warm", count, again=False)
                feed.consume(count)
                feed.drain()
        if data and tally is not None:
            coldness.begin(self.rank, tally, _MODES[visit.feed], self._sweeping)
        for feed, count in zip(feeds, wanted, strict=True):
            feed.begin(visit.feed, count, again=visit.feed == "warm")

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
        elif visit.feed in _MODES:
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
