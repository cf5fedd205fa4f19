"""Running one block: settle, time the steps, read the counters, and agree with the other ranks what is next."""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.base.ladder import Visit
from stash.measure.agent.data import batches, reading
from stash.measure.agent.wraps import loader
from stash.measure.linux import counters
from stash.measure.run.orders import Plan

if TYPE_CHECKING:
    from stash.measure.agent.climb.climber import Climber

_BLOCK_SECONDS = (0.2, 2.0)
_MOST_STEPS = 50
_RATE_ROUNDS = 2
_COLD_ENOUGH = 0.1
_MODES = {"warm": reading.WARM, "cold": reading.COLD}


@dataclass(frozen=True)
class Outcome:
    """What the leader decided after a block: stop here, or leave a rung out from now on."""

    stop: bool = False
    drop: str | None = None
    again: bool = False


class Running:
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

    def seconds(self, now: float) -> float:
        """Training time from the start until ``now``."""
        return now - self.started - self.interrupted


class Crew:
    """Runs the visits of a round on this rank; ``step_seconds`` sizes the blocks."""

    def __init__(self, climber: Climber, step_seconds: float) -> None:
        self.climber = climber
        self.step_seconds = step_seconds
        self.began = 0.0
        self._sizes: dict[str, tuple[int, int]] = {}
        self._sweeping = False

    def start(self) -> None:
        """Size the blocks, the same on every rank; the run's clock starts."""
        climber = self.climber
        target = min(max(climber.plan.budget / 120, _BLOCK_SECONDS[0]), _BLOCK_SECONDS[1])
        workers = max((feed.workers for feed in climber.feeds), default=0)
        per_step = max((feed.per_step for feed in climber.feeds), default=1)

        most = climber.plan.most_steps or _MOST_STEPS

        def size(reports: list[Any]) -> dict[str, tuple[int, int]]:
            slowest, most_workers, micro = (max(r[i] for r in reports) for i in range(3))
            steps = min(max(2 if slowest < 0.25 else 1, round(target / slowest)), most)
            settle = 1 if climber.device.type == "cpu" else 2
            # Workers started together deliver together: measure whole bursts, after the first one.
            burst = max(1, math.ceil(min(most_workers, 8, most) / micro))
            data = max(1, round(steps / burst)) * burst
            return {"replay": (settle, steps), "data": (max(settle, burst), data)}

        self._sizes = climber.agree((self.step_seconds, workers, per_step), size)
        self.began = climber.clock.settled()
        if climber.control.leads:
            climber.trace.write("phase", name="blocks", sizes=self._sizes)

    def visit(self, visit: Visit, number: int) -> Generator[None, None, Outcome]:
        """Run one block (or sit it out) and learn what to do next."""
        climber = self.climber
        if climber.control.leads:
            climber.trace.write("phase", name=visit.rung, round=number)
        takes_part = visit.active == "all" or climber.control.leads == (visit.active == "leader")
        report = (yield from self._run(visit, number)) if takes_part else None
        outcome = climber.agree(report, lambda reports: self._decide(visit, number, reports))
        if outcome.again:
            self._sweeping = True
            return (yield from self.visit(visit, number))
        if not outcome.stop and outcome.drop is None and number < climber.plan.first_round + _RATE_ROUNDS:
            self._extras(visit, number)
        return outcome

    def _run(self, visit: Visit, number: int) -> Generator[None, None, dict[str, Any]]:
        climber = self.climber
        data = visit.feed in _MODES
        settle, steps = self._sizes["data" if data else "replay"]
        if climber.switches:
            climber.set_scope(visit.scope)
        board = reading.own_board()
        self._prepare(visit, settle + steps, board)
        muster(climber.plan, f"{number}.{visit.rung}")
        for _ in range(settle):
            yield
        for feed in climber.feeds:
            feed.ring.judge()
        waits = [feed.wait for feed in climber.feeds]
        samples = [feed.samples for feed in climber.feeds]
        before = counters.snapshot()
        running = climber.block = Running(climber.clock.settled())
        for index in range(steps):
            yield
            running.step(climber.clock.now() if index < steps - 1 else climber.clock.settled())
        climber.block = None
        report = {
            "round": number, "rung": visit.rung, "rank": climber.control.place.rank, "steps": steps,
            "seconds": sum(running.steps), "step_seconds": running.steps,
            "interrupted_seconds": running.interrupted, "started": running.started - self.began,
            "launch": climber.plan.launch, "gpu": counters.gpu_utilisation(climber.device),
            **counters.difference(before, counters.snapshot()),
        }  # fmt: skip
        if climber.feeds:
            report["wait_seconds"] = sum(f.wait for f in climber.feeds) - sum(waits)
            report["samples"] = (sum(f.samples for f in climber.feeds) - sum(samples)) or None
        if data:
            self._drain(board, report)
        return report

    def _prepare(self, visit: Visit, steps: int, board: reading.Board | None) -> None:
        """Set every loader to the block's feed; a data block starts with empty queues and fresh counters."""
        feeds, data = self.climber.feeds, visit.feed in _MODES
        wanted = [steps * feed.per_step + feed.depth + 1 for feed in feeds]
        for feed, count in zip(feeds, wanted, strict=True):
            feed.drain()
            if visit.feed == "warm" and not feed.remembers:  # no cold block read these samples before
                feed.begin("warm", count, again=False)
                feed.consume(count)
                feed.drain()
        if data and board is not None:
            board.set_mode(_MODES[visit.feed])
            self._sweep(visit)
        for feed, count in zip(feeds, wanted, strict=True):
            feed.begin(visit.feed, count, again=visit.feed == "warm")

    def _drain(self, board: reading.Board | None, report: dict[str, Any]) -> None:
        """Empty the queues, untimed, and add what the loader's processes counted over the whole block."""
        for feed in self.climber.feeds:
            feed.drain()
        if board is None:
            return
        totals = board.totals()
        board.set_mode(reading.IDLE)
        if totals["batches"] == 0:
            return
        made = report["steps"] * sum(feed.per_step for feed in self.climber.feeds)
        share = made / totals["batches"]  # of the block's batches that the measured steps used
        report["fetch_seconds"] = totals["making_ns"] * 1e-9 * share
        report["resident"] = totals["resident"] / totals["pages"] if totals["pages"] else None
        report["files"] = round(totals["files"] * share)
        report["file_bytes"] = round(totals["bytes"] * share)
        report["storage_bytes"] = round(totals["storage"] * share)

    def _sweep(self, visit: Visit) -> None:
        plan = self.climber.plan
        if self._sweeping and plan.data_root and self.climber.control.place.local_rank == 0:
            pages, resident = reading.sweep_folder(plan.data_root, cold=visit.feed == "cold")
            board = reading.own_board()
            if board is not None:
                board.add(0, pages=pages, resident=resident)

    def _decide(self, visit: Visit, number: int, reports: list[Any]) -> Outcome:
        """The leader's part: stream the block, look whether to stop and whether a cold block was cold."""
        climber = self.climber
        done = [report for report in reports if report is not None]
        again = False
        drop = None
        if visit.rung == "cold" and number == climber.plan.first_round:
            why = self._not_cold(done)
            again = why is not None and bool(climber.plan.data_root) and not self._sweeping
            drop = None if again else why
        if visit.measured and not again:
            for report in done:
                climber.trace.write("block", **report)
        if drop is not None:
            climber.trace.write("skipped", rung="cold", why=drop)
        return Outcome(stop=climber.plan.stop.exists(), drop="cold" if drop else None, again=again)

    def _not_cold(self, reports: list[Any]) -> str | None:
        """Why this cold block proves nothing, or None if its files were out of the page cache."""
        known = [r["resident"] for r in reports if r.get("resident") is not None]
        if not known:
            return (
                "no file was seen being read by the loader (data in memory, an object store, or C code "
                "that opens files itself: then pass --data-root)"
            )
        worst = max(known)
        if worst > _COLD_ENOUGH:
            return f"{worst:.0%} of the pages stayed in memory after eviction (a RAM disk or a shared mapping?)"
        return None

    def _extras(self, visit: Visit, number: int) -> None:
        """In the first rounds: the loader by itself (rates P and F), and the exchange by itself."""
        if visit.rung in _MODES:
            self._loader_alone(visit, number)
        elif visit.rung in ("node", "cluster"):
            self._exchange_alone(visit)

    def _loader_alone(self, visit: Visit, number: int) -> None:
        climber, feeds = self.climber, self.climber.feeds
        workers = max(feed.workers for feed in feeds)
        lead_in = max(1, workers)  # steps until the first burst of the workers is over
        steps = max(2 * workers, 2)
        board = reading.own_board()
        for feed in feeds:
            feed.drain()
        if board is not None:
            board.set_mode(_MODES[visit.feed])
        for feed in feeds:
            feed.begin(visit.feed, (lead_in + steps) * feed.per_step + feed.depth, again=True)
        _consume(feeds, lead_in)
        began = climber.clock.now()
        samples = _consume(feeds, steps)
        seconds = climber.clock.now() - began
        for feed in feeds:
            feed.drain()
        if board is not None:
            board.set_mode(reading.IDLE)
        rank = climber.control.place.rank

        def write(reports: list[Any]) -> None:
            for report in reports:
                if report["samples"]:  # a batch that cannot be counted has no rate, rather than one of zero
                    climber.trace.write("rate", **report)

        climber.agree(
            {"feed": visit.feed, "rank": rank, "round": number, "samples": samples, "seconds": seconds}, write
        )

    def _exchange_alone(self, visit: Visit) -> None:
        from stash.measure.agent.wraps import replicas

        climber, place = self.climber, self.climber.control.place
        sizes, _ = replicas.gradient_facts()
        if not sizes:
            return
        within_node = visit.scope == "node" and place.nodes > 1
        seconds = [_all_reduce(sizes, climber, within_node) for _ in range(3)]

        def write(reports: list[Any]) -> None:
            for index in range(1, 3):  # the first one makes connections
                slowest = max(report[index] for report in reports)
                ranks = place.ranks_per_node if within_node else place.world_size
                climber.trace.write("collective", scope=visit.scope, ranks=ranks, bytes=sum(sizes), seconds=slowest)

        climber.agree(seconds, write)


def _consume(feeds: list[loader.Feed], steps: int) -> int:
    """Read what ``steps`` steps would from all training loaders; the value counts samples."""
    return sum(feed.consume(feed.per_step) for _ in range(steps) for feed in feeds)


def _all_reduce(sizes: list[int], climber: Climber, within_node: bool) -> float:
    """Seconds for one all-reduce of every gradient bucket, in order, with nothing else going on."""
    import torch
    import torch.distributed as dist

    from stash.measure.agent.wraps import collectives

    group = climber.control.node_group if within_node else None
    if within_node and group is None:
        return 0.0  # the only rank of its node; the others' times count
    whole = torch.zeros(max(sizes) // 4, dtype=torch.float32, device=climber.device)
    # One buffer serves all buckets where a stream serialises them; gloo reduces several at once.
    on_stream = climber.device.type != "cpu"
    buckets = [whole[: size // 4] if on_stream else torch.zeros_like(whole[: size // 4]) for size in sizes]
    with collectives.untouched():
        dist.all_reduce(torch.zeros(1, device=climber.device), group=group)
        began = climber.clock.settled()
        works: list[Any] = [dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets]
        for work in works:
            work.wait()
        return climber.clock.settled() - began


def muster(plan: Plan, label: str, patience: float = 120.0) -> None:
    """Wait until all launches that run side by side have come to the same block."""
    if plan.crowd == 1 or plan.gang is None:
        return
    meeting = Path(plan.folder).parent
    stem = f"muster.{plan.launch}.{label}."
    (meeting / f"{stem}{plan.gang[0]}").touch()
    deadline = time.monotonic() + patience
    while len(list(meeting.glob(f"{stem}*"))) < plan.crowd and time.monotonic() < deadline:
        time.sleep(0.005)


def loader_facts(feeds: list[loader.Feed]) -> dict[str, Any]:
    """Fields of ``records.Workload`` that the training loaders tell."""
    if not feeds:
        return {}
    described = []
    for feed in feeds:
        facts: dict[str, Any] = {"kind": feed.kind, "batches_per_step": feed.per_step}
        facts["startup_seconds"] = feed.startup
        real = getattr(feed, "loader", None)
        if real is not None:
            facts |= {
                "workers": real.num_workers,
                "prefetch_factor": real.prefetch_factor,
                "persistent_workers": real.persistent_workers,
                "pin_memory": real.pin_memory,
                "samples": _length(real.dataset),
            }
        described.append(facts)
    counts = [batches.samples(feed.ring.peek()) for feed in feeds]
    known = [count * feed.per_step for count, feed in zip(counts, feeds, strict=True) if count is not None]
    samples = sum(known) if len(known) == len(feeds) else None
    size = sum(batches.size(feed.ring.peek()) * feed.per_step for feed in feeds)
    return {
        "loaders": described,
        "batch": samples,
        "sample_bytes": size / samples if samples else None,
        "replayed_batches": max(len(feed.ring) for feed in feeds),
    }


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except TypeError:  # an iterable without a length
        return None
