"""Some steps of the script, timed one by one: what they waited for, what kept them, and what they used.

The same for every block of the ladder and for the first steps of a job, which are as they were typed. What feeds hand
out meanwhile, and how far collectives reach, is the caller's to set.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
import resource
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import fmean, median_low
from typing import Any

from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block, Memory
from stash.measure.agent import private
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.tally import Tally, own_seconds, own_tally
from stash.measure.agent.runner.block_plan import SETTLED_STEPS
from stash.measure.agent.runner.ledger_keeper import LedgerKeeper
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.stamps import BlockClock, Stamps
from stash.measure.agent.wraps import replicas, trial_changes
from stash.measure.agent.wraps.scope import scope
from stash.measure.agent.wraps.waits import UNNAMED, ledger
from stash.measure.linux import counters, processes, run_queue
from stash.measure.protocol.messages import Payload, PhaseBegun
from stash.measure.protocol.stamped import StampedStep, StepStage

_UNTOUCHED_SECONDS = 6.0
_UNTOUCHED_SHARE = 0.15
"""Of the budget, at most, that a job's first steps are timed for."""
_LARGEST_SHARE = 0.25
"""The same where that shows an epoch's start, or few steps at all."""
_UNTOUCHED_STEPS = (3, 400)
_LOOKS_AGAIN = (10, 30, 90, 200)
"""Steps at which it is seen how many fit: the first ones take what workers had ready."""
_USUAL_STEPS = 30
"""So many show what comes every 20 or 25 steps."""
_MANY_STEPS = 150
"""As many as tell a step's mean: scripts of quick trials have few more."""
_MANY_SECONDS = 0.8
"""As long as short steps are followed: PPO updates 320 times between two rollouts."""
_AFTER_EPOCH_START = 10
"""Steps of the next epoch."""
_PREEMPTED_SECONDS, _PREEMPTED_TIMES = 1e-3, 4.0
"""Beyond what Stash's own work usually takes in a step, from which the thread had no core meanwhile."""
_FEWEST_OF_A_LOOK, _SECONDS_OF_A_LOOK = 5, 0.25
"""So many of a job's first steps, and seconds, are told of before the others are timed."""
_GROWTH = 1.01
"""By how much a peak must exceed the last one that was written down."""


def time_steps(
    rank: OwnRank,
    loops: Loops,
    rung: str,
    number: int,
    steps: int,
    began: float,
    most_seconds: float | None = None,
    settles: bool = False,
) -> Generator[None, None, Block]:
    """Time ``steps`` of the script; ``began``: the run. Of long ones fewer fit ``most_seconds``.

    If it ``settles``, one goes by before them.

    A CUDA device tells by events in its queue what they took, from the end of the step before to the end of the last:
    a host that runs ahead goes on doing so, and hides in a block what it hides in the job; the caller has let a step
    go by since the queue was last waited for. Queues of other devices are empty at both ends.
    """
    feeds, stamps, whole = rank.feeds, rank.stamps, scope.name == "world"
    usage, before = yield from _begin_usage(feeds, settles, steps)
    stamps.begin()
    issued = private.sequence_numbers() if rank.place.world_size > 1 else {}
    ledger.begin(rank.device if rank.device.type == "cuda" else None)
    clock = loops.begin_block()
    ended, taken = yield from _take_steps(rank, loops, clock, steps, most_seconds)
    steps = len(clock.steps)
    ledger.end(steps if whole else 0)
    loops.end_block()
    found = usage.until_now(steps / (steps + before)) | _group_facts()
    stamped, leads = stamps.block_steps(), stamps.host_leads(ended)
    if whole:
        note_blind_groups(rank, issued)
    if ledger.last_block.lost:
        rank.note(
            "steps have more collectives than Stash keeps: what the last of a block are waited for is not seen"
        )
    waited, counting, trying, served, telling, saving = (
        taken[field::_TAKEN] for field in range(_TAKEN)
    )
    steady = own = without_preemption(counting)
    if not rank.clock.runs_ahead:  # else handing out batches costs a step no time
        own_work = without_preemption([*map(operator.add, telling, trying)])
        own = tuple(map(operator.add, steady, own_work))
    lengths = _step_lengths(rank, clock, stamped, own)
    if stamps.sees_delays:
        paused = [*map(operator.add, clock.pauses, saving)]
        found |= _delay_facts(stamps, stamped, lengths, paused)
    if stamps.sees_exchange:
        found |= _exchange_facts(stamps, stamped)
    found |= _input_facts(feeds, tuple(map(operator.sub, waited, steady)), tuple(map(int, served)))
    return Block(
        round=number,
        rung=rung,
        rank=rank.place.rank,
        steps=steps,
        seconds=sum(lengths),
        step_seconds=tuple(lengths),
        interrupted_seconds=clock.interrupted,
        started=clock.started - began,
        launch=rank.orders.launch,
        gpu=counters.gpu_utilisation(rank.clock.gpu),
        host_leads=tuple(map(_round_seconds, leads)),
        stage_seconds=_round_all(_sum_stages(stamped)),
        **found,
    )


def _input_facts(
    feeds: Sequence[Feed], waits: tuple[float, ...], served: tuple[int, ...]
) -> dict[str, Any]:
    """Fields of ``Block`` that tell how steps waited for loaders, and of how many samples they were."""
    if not feeds:
        return {"step_wait_delays": ()}
    found: dict[str, Any] = {"wait_seconds": sum(waits), "step_waits": waits}
    if not any(feed.handed.uncounted for feed in feeds):
        found |= {"samples": sum(served) or None, "step_samples": served}
    return found


def _begin_usage(
    feeds: Sequence[Feed], settles: bool, steps: int
) -> Generator[None, None, tuple[Usage, int]]:
    """Count what is used from now on; the value is that, and how many steps it has before the first of ``steps``.

    While the machine is read, threads of parallel loops fall asleep: where steps are short, the one that settles comes
    after that.
    """
    if not settles or steps < SETTLED_STEPS:
        yield from [None] * settles
        return Usage(feeds), 0
    usage = Usage(feeds)
    yield
    return usage, 1


_TAKEN = 6
"""Of each step, one after the other: what loaders made it wait, what counting took, what Stash's other work took, its
samples, what telling Stash took, and what saving took; seconds. An object for each step would set off Python's
collector, which a job that leaves no garbage never does."""


def _take_steps(
    rank: OwnRank, loops: Loops, clock: BlockClock, steps: int, most_seconds: float | None
) -> Generator[None, None, tuple[float, list[float]]]:
    """When the last of so many steps ended, or of as many as fit ``most_seconds``, and what was read of each."""
    tally, feeds = own_tally(), rank.feeds
    taken: list[float] = []
    before = _sum_so_far(feeds, loops, tally)
    rank.ledger.take_saving_seconds()
    ended, has_looked = clock.started, most_seconds is None
    while (done := len(taken) // _TAKEN + 1) <= steps:
        yield
        if most_seconds is not None and done in _LOOKS_AGAIN:
            steps = min(steps, _count_fitting(rank, most_seconds, done, sum(clock.steps)))
        ended = rank.clock.end_of_step(settled=done == steps)
        now = _sum_so_far(feeds, loops, tally)
        waited, counting, trying, samples = map(operator.sub, now, before)
        before, saved = now, rank.ledger.take_saving_seconds()
        taken += (waited, counting, trying, samples, rank.own_seconds, saved)
        clock.step(ended, loops.is_between_epochs, saved)
        if (
            not has_looked
            and done >= _FEWEST_OF_A_LOOK
            and ended - clock.started >= _SECONDS_OF_A_LOOK
        ):
            has_looked = True
            mean, waits = fmean(clock.steps), fmean(taken[::_TAKEN])
            rank.publish(PhaseBegun("first-steps", None, mean, done, waits))
        ledger.last_block.cut()
    return ended, taken


def _count_fitting(rank: OwnRank, most_seconds: float, done: int, seconds: float) -> int:
    """So many steps, of which all but the last of those ``done`` took ``seconds``: the fewest of any rank."""
    fit = max(done + 1, most_seconds * (done - 1) / seconds) if seconds > 0 else math.inf
    return int(rank.agree(int(min(fit, _UNTOUCHED_STEPS[1])), min))


def without_preemption(own: Sequence[float]) -> tuple[float, ...]:
    """What Stash's own work took in each step, without what the thread waited for a core meanwhile.

    The same work takes about as long in each step; a wait is in the thread's delays, which are subtracted as well.
    """
    usual = median_low(own)
    most = max(_PREEMPTED_TIMES * usual, usual + _PREEMPTED_SECONDS)
    return tuple(usual if seconds > most else seconds for seconds in own)


def delays_within(
    delays: Sequence[float], lengths: Sequence[float], paused: Sequence[float]
) -> tuple[float, ...]:
    """The thread's delays within steps of these ``lengths``, of which others were ``paused`` and are no part.

    Delays are taken to be spread evenly over both.
    """
    return tuple(
        delay * max(0.0, length) / (max(0.0, length) + pause) if pause > 0 else delay
        for delay, length, pause in zip(delays, lengths, paused, strict=True)
    )


def _step_lengths(
    rank: OwnRank, clock: BlockClock, rows: Sequence[StampedStep], own: Sequence[float]
) -> list[float]:
    """Seconds of each step, less Stash's ``own`` work; of a device by its clock, less what was not training."""
    by_host = [seconds - less for seconds, less in zip(clock.steps, own, strict=True)]
    if not rank.stamps.follows_device:
        return by_host
    if len(rows) != len(clock.pauses):
        rank.note(
            "the device's own times of some steps were lost: the host's stand for them, with the queue's filling"
        )
        return by_host
    return [sum(row.stages) - paused for row, paused in zip(rows, clock.pauses, strict=True)]


def note_blind_groups(rank: OwnRank, before: dict[str, int]) -> None:
    """Say of which groups collectives were issued since ``before`` and none was seen: by compiled code, or C++.

    Those of DistributedDataParallel's reducer are known by other means. Groups have names from the first round on.
    """
    known = {group for group, _ in ledger.last_block.uses}
    known |= {group.group_name for group in replicas.list_groups()}
    now = private.sequence_numbers() if ledger.names and before else {}
    moved = {name for name, count in now.items() if count != before.get(name, count)}
    if blind := sorted({ledger.names.get(name, UNNAMED) for name in moved - known}):
        rank.note(
            f"collectives of {' and '.join(blind)} are issued where Stash does not see them (a compiled graph, C++): "
            "what ranks wait for them is in compute; profile without torch.compile to see it"
        )


def _sum_so_far(
    feeds: Sequence[Feed], loops: Loops, tally: Tally | None
) -> tuple[float, float, float, int]:
    """So far: what loaders made steps wait, what counting took, what other work of Stash took; and the samples.

    Such work is trials' recording, and what stands in for collectives: an exchange copies, too, and computing does not.
    """
    wait = 0.0
    for feed in feeds:
        wait += feed.handed.wait
    own = trial_changes.own_seconds() + scope.standing_in
    return wait, own_seconds(tally), own, loops.samples


def _sum_stages(steps: Sequence[StampedStep]) -> dict[str, float]:
    """Seconds by the stage's name, of those that any step had."""
    sums = {stage: sum(step.seconds_in(stage) for step in steps) for stage in StepStage}
    return {stage.name.lower(): seconds for stage, seconds in sums.items() if seconds}


def _delay_facts(
    stamps: Stamps,
    steps: Sequence[StampedStep],
    lengths: Sequence[float],
    paused: Sequence[float],
) -> dict[str, Any]:
    """Fields of ``Block`` that tell for how long its threads had no core."""
    delays = tuple(step.delay for step in steps)
    is_whole = len(delays) == len(lengths)
    return {
        "step_delays": delays_within(delays, lengths, paused) if is_whole else delays,
        "step_wait_delays": tuple(step.input_delay for step in steps),
        "loop_delays": stamps.loop_delays(),
        "helper_cpu_seconds": stamps.helper_cpu(),
    }


def _exchange_facts(stamps: Stamps, steps: Sequence[StampedStep]) -> dict[str, Any]:
    """Fields of ``Block`` that tell of windows of exchange."""
    return {
        "step_exchanges": tuple(step.seconds_in(StepStage.EXCHANGE) for step in steps),
        "step_exchange_delays": tuple(step.exchange_delay for step in steps),
        "helper_delay_seconds": stamps.window_times.delayed,
        "helper_window_cpu_seconds": stamps.window_times.ran,
    }


def _group_facts() -> dict[str, Any]:
    """Fields of ``Block`` that tell of groups, experts and phases."""
    return {
        "phase_seconds": _round_all(ledger.phase_seconds()),
        "group_waits": _round_all(ledger.waits()),
        "group_under_way": _round_all(ledger.under_way()),
        "received_rows": ledger.received_rows(),
    }


def _round_all(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: _round_seconds(each) for name, each in seconds.items()}


def time_untouched(
    rank: OwnRank, loops: Loops, step_seconds: float
) -> Generator[None, None, tuple[Payload, Payload] | None]:
    """Time the job's first steps, as typed, which the ladder's highest rung is held against; none if few fit.

    They reach into the next epoch where that begins soon, and with them the rank's ledger ends.
    """
    ledger = rank.ledger
    if rank.orders.first_steps == 0 or not isinstance(ledger, LedgerKeeper):
        return None
    ahead = max((feed.depth // feed.per_step for feed in rank.feeds), default=0)
    # the step before was waited for: its queue is empty
    ahead = max(ahead, int(rank.stamps.follows_device))
    of_epoch = epoch_steps(rank.feeds)
    wanted = _untouched_steps(rank.orders.budget, step_seconds, ledger, of_epoch)
    wanted = min(wanted, rank.orders.first_steps or wanted)
    ledger.collect_garbage_of_start()  # before ranks agree: none of them is waited for in a step
    steps, settle = rank.agree(
        (wanted, min(_UNTOUCHED_STEPS[1], ahead)),
        lambda reports: (min(steps for steps, _ in reports), max(settle for _, settle in reports)),
    )
    if steps < _UNTOUCHED_STEPS[0]:
        return None
    for _ in range(settle):
        yield
    ledger.begin_timing(has_devices=rank.clock.runs_ahead)
    began = rank.clock.now()
    longest = _LARGEST_SHARE * rank.orders.budget
    block = yield from time_steps(
        rank, loops, UNTOUCHED.name, rank.orders.first_round, steps, began, longest
    )
    between = block.stage_seconds.get("between", 0.0) if rank.clock.runs_ahead else None
    is_alone = rank.place.world_size == 1 and not rank.clock.runs_ahead
    return Payload.pack(block), Payload.pack(
        ledger.end(rank.place.rank, of_epoch, between, is_alone)
    )


def epoch_steps(feeds: Sequence[Feed]) -> int | None:
    """Optimizer steps of an epoch, by the shortest loader that has a length."""
    lengths = [feed.length // feed.per_step for feed in feeds if feed.length is not None]
    return max(1, min(lengths)) if lengths else None


def _untouched_steps(budget: float, step: float, ledger: LedgerKeeper, of_epoch: int | None) -> int:
    """How many of the first steps to time: those of a share of the budget, or until the next epoch is under way.

    An epoch takes as long to start as the first one did, for all that is known.
    """
    fewest, most = _UNTOUCHED_STEPS
    if step <= 0:
        return _MANY_STEPS
    longest = _LARGEST_SHARE * budget
    if fewest * step > longest:
        return 0
    usual = min(_UNTOUCHED_SECONDS, _UNTOUCHED_SHARE * budget)
    many = min(most, max(_MANY_STEPS, int(_MANY_SECONDS / step)))
    steps = min(many, int(max(usual, min(_USUAL_STEPS * step, longest)) / step))
    if of_epoch is not None:
        through = max(0, of_epoch - ledger.steps_of_epoch) + max(
            fewest, min(of_epoch, _AFTER_EPOCH_START)
        )
        if through * step + ledger.first_start <= longest:
            steps = max(steps, min(most, through))
    return steps


class Usage:
    """What a block, which begins as this object is made, uses of the machine; in CPU seconds.

    Its own process, those below it, of which its loader's workers, and the whole machine.
    """

    def __init__(self, feeds: Sequence[Feed]) -> None:
        sources = (getattr(feed, "source", None) for feed in feeds)
        self._workers = [
            worker.pid for source in sources for worker in private.worker_processes(source)
        ]
        self._below = {*self._workers, *processes.list_descendants(os.getpid())}
        self._throttled = run_queue.throttled_seconds()
        self._delayed = run_queue.sum_processes(self._workers).delayed
        self._ran_below = _processes_ran(self._below)
        self._machine = counters.read_totals()
        self._own = _read_own()

    def until_now(self, share: float = 1.0) -> dict[str, Any]:
        """Fields of ``Block``: the ``share`` of what was used that is its steps', and what the machine did meanwhile."""
        process, thread, switches = map(operator.sub, _read_own(), self._own)
        machine = counters.activity_since(self._machine)
        delayed = run_queue.sum_processes(self._workers).delayed - self._delayed
        below = self._below | {*processes.list_descendants(os.getpid())}
        ran_below = _processes_ran(below) - self._ran_below
        before, throttled = self._throttled, run_queue.throttled_seconds()
        limited = None if throttled is None or before is None else throttled - before
        used = {
            "network_bytes": machine.network_bytes,
            "disk_bytes": machine.disk_bytes,
            "cpu_seconds": process,
            "thread_cpu_seconds": thread,
            "switches": int(switches),
            "machine_cpu_seconds": machine.cpu_seconds,
            "worker_cpu_seconds": ran_below if below or ran_below else None,
            "worker_delay_seconds": delayed if self._workers else None,
            "throttled_seconds": limited,
        }
        shared = {name: total * share for name, total in used.items() if total is not None}
        return {
            "cpu": machine.cpu,
            "steal": machine.steal,
            **{
                name: round(value) if isinstance(used[name], int) else _round_seconds(value)
                for name, value in shared.items()
            },
        }


def _read_own() -> tuple[float, float, float]:
    """So far: seconds of this process, of the calling thread, and times that a core was taken from that."""
    switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    return time.process_time(), time.thread_time(), switches


def _processes_ran(below: Iterable[int]) -> float:
    """Seconds that processes below this one have run so far, those that have ended too."""
    ended = sum(run_queue.times_of(number).ended for number in (os.getpid(), *below))
    return run_queue.sum_processes(below).ran + ended


def _round_seconds(seconds: float) -> float:
    return float(f"{seconds:.4g}")


class MemoryWatch:
    """The most memory that a rank holds while blocks are measured, of its accelerator and the host; new if it grew.

    An accelerator's peaks are those of blocks whose batches come from the host, as the job's own do; they start again
    with every block. The host's is the kernel's, of the training process since it began: it cannot start again.
    """

    def __init__(self, rank: OwnRank) -> None:
        self._rank = rank
        self._written = self._handed_in = Memory(rank.place.rank)

    def begin(self) -> None:
        """Before the timed steps of a block."""
        self._ask_allocator("reset_peak_memory_stats")

    def end(self) -> Memory | None:
        """After them; None if nothing grew beyond what was ``written_down``."""
        kept = (batch for feed in self._rank.feeds for batch in feed.ring.batches)
        seen = Memory(
            rank=self._rank.place.rank,
            allocated_bytes=self._ask_allocator("max_memory_allocated"),
            reserved_bytes=self._ask_allocator("max_memory_reserved"),
            resident_bytes=counters.peak_resident_bytes(),
            replayed_bytes=sum(map(batches.count_bytes, kept)),
        )
        before, now = dataclasses.astuple(self._written), dataclasses.astuple(seen)
        pairs = zip(before[1:], now[1:], strict=True)
        if not any(after is not None and after > _GROWTH * (then or 0) for then, after in pairs):
            return None
        self._handed_in = seen
        return seen

    def written_down(self) -> None:
        """The block counts, and with it what was handed in beside it."""
        self._written = self._handed_in

    def _ask_allocator(self, function: str) -> int | None:
        """What PyTorch's allocator of this rank's device answers; None where there is none that counts."""
        if self._rank.device.type == "cuda":
            with suppress(RuntimeError):  # of an allocator of the user's own
                answer: int = getattr(sys.modules["torch"].cuda, function)(self._rank.device)
                return answer
        return None
