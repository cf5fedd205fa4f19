"""A trial of ``stash fix``: the job as it was typed but for one change, its steps timed in short blocks.

Or many changes in one launch, of which blocks take turns: a loader for each setting of it is alive, what else can be
is switched (``trial_settings``). What such a launch trains on is no evidence, as queues are emptied between blocks.
Nothing of the ladder runs: batches, exchange and epochs are the script's own. ``wraps.trial_changes`` records losses
and batches; what a change is worth others decide.

Watching a step costs it: half a millisecond of one of 3 ms (``bench.fix.watching``), at times more. That hides behind
a wait in one arm of a comparison and not in the other. So after some steps whose losses are recorded, short steps are
*bare*: of them it is known when each ended, and which epochs began. A host that runs ahead of its device has time to
spare.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Generator, Mapping
from typing import Any

from stash.core.ladder import UNTOUCHED
from stash.core.measured import Block
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import MemoryWatch, Usage, time_steps
from stash.measure.agent.wraps import trial_changes, trial_settings
from stash.measure.agent.wraps.loader import LoaderFeed

_BLOCK_SECONDS, _TURN_SECONDS, _LONG_TURN = 1.0, 0.6, 2.0
"""Of a block as it was typed, of one of turns, and what none is to be longer than."""
_FEWEST, _MOST = 2, 100
"""Steps of a block."""
_AT_LEAST = 8
"""Steps of a trial, however long they are."""
_RECORDED, _RECORDED_SECONDS = (8, 100), 0.5
"""Steps that are recorded before bare ones, and for how long."""
_SHORT = 0.1
"""Seconds of a step: longer ones are watched, which costs them little."""
_SETTLING = 2
"""Steps after a switch that are not timed, besides those whose batches were read ahead."""


def run_trial(rank: OwnRank, loops: Loops, step_seconds: float) -> Generator[None, None, None]:
    """What the trial's orders ask for."""
    asked = rank.orders.trial or {}
    rungs = asked.get("rungs")
    if isinstance(rungs, list):
        yield from take_turns(rank, loops, step_seconds, rungs, int(str(asked.get("rounds", 1))))
    else:
        yield from time_trial(rank, loops, step_seconds)


def time_trial(rank: OwnRank, loops: Loops, step_seconds: float) -> Generator[None, None, None]:
    """Time blocks until the trial's seconds or steps are over, the same on every rank."""
    orders = rank.orders
    each, settle = rank.agree(
        (step_seconds, max((feed.depth // feed.per_step for feed in rank.feeds), default=0)),
        lambda reports: (
            max(seconds for seconds, _ in reports),
            max(ahead for _, ahead in reports),
        ),
    )
    for _ in range(min(settle, _MOST)):  # what was read ahead before the first step
        yield
    cycle = rank.agree(max((_worker_cycle(feed) for feed in rank.feeds), default=1), max)
    bare = rank.agree(_may_be_bare(rank, each), all)
    steps_of_second = max(_FEWEST, min(orders.trial_steps, round(_BLOCK_SECONDS / max(each, 1e-4))))
    size = _round_to_cycles(steps_of_second, cycle, orders.trial_steps if bare else _MOST)
    if bare:
        fewest, most = _RECORDED
        most = min(most, orders.trial_steps)
        for _ in range(max(fewest, min(most, round(_RECORDED_SECONDS / max(each, 1e-4))))):
            yield
        trial_settings.stop_recording()
        rank.stamps.let_go()
    began, memory = rank.clock.now(), MemoryWatch(rank)
    memory.begin()
    number = done = 0
    while True:
        if rank.stamps.follows_device:  # its queue was waited for, and fills again
            yield
        if bare:
            block = yield from bare_block(rank, number, size, began)
        else:
            block = yield from time_steps(rank, loops, UNTOUCHED.name, number, size, began)
        rank.agree(block, lambda blocks: rank.publish(*blocks))
        if rank.leads and (seen := memory.end()) is not None:
            rank.publish(seen)
            memory.written_down()
        feed = next(iter(rank.feeds), None)
        batches = max(1, getattr(feed, "per_step", 1))
        evidence = rank.place.rank, getattr(feed, "loader", None), batches
        trial_changes.write_evidence(*evidence)
        number, done = number + 1, done + size
        spent = rank.clock.now() - began

        def is_over(reports: list[float], done: int = done) -> bool:
            long_enough = min(reports) >= orders.trial_seconds and done >= max(_AT_LEAST, 2 * cycle)
            return long_enough or done >= orders.trial_steps

        if rank.agree(spent, is_over):
            trial_changes.write_evidence(*evidence, last=True)
            return


def _may_be_bare(rank: OwnRank, seconds: float) -> bool:
    """Whether steps of so many seconds can be left alone: they are PyTorch's, and so are the loaders' loops."""
    optimizer = sys.modules["torch"].optim.Optimizer
    asked = rank.orders.trial_bare and not rank.orders.endless
    seen = isinstance(rank.optimizer, optimizer) and all(
        isinstance(feed, LoaderFeed) for feed in rank.feeds
    )
    return asked and seen and seconds < _SHORT and not rank.clock.runs_ahead


def bare_block(
    rank: OwnRank, number: int, steps: int, began: float
) -> Generator[None, None, Block]:
    """Time the next ``steps`` as the script takes them by itself; ``began``: the trial.

    The wait for an epoch's first batch, and what came before it, is no step's; nor is a step in which the script read
    batches to validate.
    """
    rank.stamps.begin()
    usage, loops = Usage(rank.feeds), trial_changes.loops_begun
    loops.clear()
    started = rank.clock.now()
    rank.leave_alone(steps, started)
    yield
    found = usage.until_now()
    lengths, delays, whole = [], [], []
    for (before, delayed), (ended, delay) in itertools.pairwise(rank.bare.moments):
        begun = [loop for loop in loops if before < loop.came < ended]
        lengths.append(ended - max([before, *(loop.came for loop in begun if loop.trains)]))
        delays.append(delay - delayed)
        whole.append(all(loop.trains for loop in begun))
    if any(whole):
        lengths, delays = (
            list(itertools.compress(lengths, whole)),
            list(itertools.compress(delays, whole)),
        )
    if rank.stamps.sees_delays:
        found["step_delays"], found["loop_delays"] = tuple(delays), rank.stamps.loop_delays()
        found["helper_cpu_seconds"] = rank.stamps.helper_cpu()
    return Block(
        round=number,
        rung=UNTOUCHED.name,
        rank=rank.place.rank,
        steps=len(lengths),
        seconds=sum(lengths),
        step_seconds=tuple(lengths),
        started=started - began,
        launch=rank.orders.launch,
        **found,
    )


def take_turns(
    rank: OwnRank, loops: Loops, step_seconds: float, rungs: list[Mapping[str, Any]], rounds: int
) -> Generator[None, None, bool]:
    """Time a block with each of these settings, round after round; False if there is no loader to switch as asked.

    The block of setting ``i`` in round ``r`` is number ``r * len(rungs) + i``.
    """
    feed = rank.feeds[0] if len(rank.feeds) == 1 else None
    fits = isinstance(feed, LoaderFeed) and feed.kind == "map" and feed.loader is not None
    needed = any(rung.get("loader") for rung in rungs)
    if needed and not rank.agree(fits, all):
        return False
    loaders = Loaders(feed) if needed and isinstance(feed, LoaderFeed) else None
    each = rank.agree(step_seconds, max)
    size = max(_AT_LEAST, round(_TURN_SECONDS / max(each, 1e-4)))
    began = rank.clock.now()
    for number in range(rounds):
        order = range(len(rungs)) if number % 2 == 0 else reversed(range(len(rungs)))
        for index in order:
            trial_settings.apply_turn(rungs[index])
            if loaders is not None:
                loaders.switch(rungs[index].get("loader") or {})
            rank.agree(None, lambda reports: None)
            ahead = max(
                (min(feed.depth // feed.per_step, size, _MOST) for feed in rank.feeds), default=0
            )
            switched = rank.clock.now()
            for _ in range(_SETTLING + ahead):
                yield
            slow = rank.agree((rank.clock.now() - switched) / (_SETTLING + ahead), max)
            steps = size
            if (
                "loader" not in rungs[index]
            ):  # what is far slower, like too many threads, shows that in few steps
                steps = max(_FEWEST, min(size, round(_LONG_TURN / max(slow, 1e-4))))
            steps = _round_to_cycles(
                steps, max((_worker_cycle(feed) for feed in rank.feeds), default=1)
            )
            block = yield from time_steps(
                rank, loops, UNTOUCHED.name, number * len(rungs) + index, steps, began
            )
            rank.agree(block, lambda blocks: rank.publish(*blocks))
    trial_settings.apply_turn({})
    return True


def _worker_cycle(feed: Feed) -> int:
    """Steps in which each worker of a loader has made as many batches; batches of one time come all at once."""
    return max(1, feed.workers // math.gcd(feed.workers, feed.per_step))


def _round_to_cycles(steps: int, cycle: int, most: int = _MOST) -> int:
    """So many steps or a few more, in whole cycles: a block then waits for as many bursts of batches as any other."""
    return math.ceil(min(steps, most) / cycle) * cycle if cycle <= most else most


class Loaders:
    """Iterators over one loader with different settings, all alive; the feed serves from one at a time."""

    def __init__(self, feed: LoaderFeed) -> None:
        self._feed = feed
        self._made: dict[tuple[tuple[str, Any], ...], Any] = {}

    def switch(self, rung: Mapping[str, Any]) -> None:
        """Serve from the iterator with these settings, made the first time, its queue filled from empty."""
        feed, loader, index = self._feed, self._feed.loader, tuple(sorted(rung.items()))
        feed.drain()
        before = dict(vars(loader))
        workers = int(rung.get("num_workers", loader.num_workers))
        new = {
            "prefetch_factor": loader.prefetch_factor or 2,
            **rung,
            "persistent_workers": workers > 0,
        }
        vars(loader).update(new if workers else {**new, "prefetch_factor": None})
        try:
            self._made[index] = feed.serve_endlessly(self._made.get(index))
        finally:
            vars(loader).update(before)
