"""A trial of ``stash fix``: the job as it was typed but for one change, its steps timed in short blocks.

Nothing of the ladder runs: batches, exchange and epochs are the script's own. Losses and batches ``wraps.changes``
records; what a change is worth others decide.
"""

from __future__ import annotations

from collections.abc import Generator

from stash.core.ladder import UNTOUCHED
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.timed_steps import MemoryWatch, timed
from stash.measure.agent.wraps import changes

_BLOCK_SECONDS = 1.0
_FEWEST, _MOST = 2, 100
"""Steps of a block."""
_AT_LEAST = 8
"""Steps of a trial, however long they are."""


def steps(rank: OwnRank, loops: Loops, step_seconds: float) -> Generator[None, None, None]:
    """Time blocks until the trial's seconds or steps are over, the same on every rank."""
    orders = rank.orders
    each, settle = rank.agree(
        (step_seconds, max((feed.depth // feed.per_step for feed in rank.feeds), default=0)),
        lambda reports: (max(seconds for seconds, _ in reports), max(ahead for _, ahead in reports)),
    )
    for _ in range(min(settle, _MOST)):  # what was read ahead before the first step
        yield
    size = max(_FEWEST, min(_MOST, orders.trial_steps, round(_BLOCK_SECONDS / max(each, 1e-4))))
    began, memory = rank.clock.now(), MemoryWatch(rank)
    memory.begin()
    number = done = 0
    while True:
        block = yield from timed(rank, loops, UNTOUCHED.name, number, size, began)
        rank.agree(block, lambda blocks: rank.publish(*blocks))
        if rank.leads:
            seen = memory.end()
            if seen is not None:
                rank.publish(seen)
                memory.written_down()
        feed = next(iter(rank.feeds), None)
        loader, length = getattr(feed, "loader", None), getattr(feed, "length", None)
        changes.write(rank.place.rank, loader, length, max(1, getattr(feed, "per_step", 1)))
        number, done = number + 1, done + size
        spent = rank.clock.now() - began

        def over(reports: list[float], done: int = done) -> bool:
            return (min(reports) >= orders.trial_seconds and done >= _AT_LEAST) or done >= orders.trial_steps

        if rank.agree(spent, over):
            return
