"""Some steps of the script, timed one by one: what they waited for, what kept them, and what they used.

The same for every block of the ladder and for the first steps of a job, which are as they were typed. What feeds hand
out meanwhile, and how far collectives reach, is set by whoever calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TypeVar

from stash.core.ladder import UNTOUCHED
from stash.measure.agent.data.reads import own_seconds, own_tally
from stash.measure.agent.runner.block_usage import Usage
from stash.measure.agent.runner.loops import Loops
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.linux.counters import gpu_utilisation
from stash.measure.protocol.messages import BlockDone

N = TypeVar("N", int, float)
_SECONDS = 2.0
_SHARE = 0.05
"""Of the budget, at most, that a job's first steps are timed for."""
_STEPS = (5, 20)


def timed(
    rank: OwnRank, loops: Loops, rung: str, number: int, steps: int, began: float
) -> Generator[None, None, BlockDone]:
    """The next ``steps`` of the script; the devices' queues are empty at both ends."""
    tally = own_tally()

    def own() -> float:
        """What Stash itself took within steps so far; where devices run ahead, handing out costs none."""
        handing_out = 0.0 if rank.clock.runs_ahead else sum([feed.own for feed in rank.feeds])
        return own_seconds(tally) + handing_out

    def waited() -> float:
        return sum([feed.wait for feed in rank.feeds]) - own_seconds(tally)

    waits, wait_delays, taken = [waited()], [_wait_delay(rank)], [own()]
    served = [sum(feed.samples for feed in rank.feeds)]
    rank.stamps.begin()
    usage = Usage(rank.feeds)
    clock = loops.begin_block()
    for index in range(steps):
        yield
        now = rank.clock.end_of_step(settled=index == steps - 1)
        taken.append(own())
        clock.step(now, loops.between, taken[-1] - taken[-2])
        served.append(sum([feed.samples for feed in rank.feeds]))
        waits.append(waited())
        wait_delays.append(_wait_delay(rank))
    loops.clock = None
    block = usage.until_now(BlockDone(
        round=number, rung=rung, rank=rank.place.rank, steps=steps, seconds=sum(clock.steps),
        step_seconds=tuple(clock.steps), interrupted_seconds=clock.interrupted, started=clock.started - began,
        launch=rank.orders.launch, gpu=gpu_utilisation(rank.clock.gpu),
    ))  # fmt: skip
    if rank.stamps.known:
        block = replace(
            block,
            step_delays=tuple(rank.stamps.delays),
            loop_delays=rank.stamps.loop_delays(),
            helper_cpu_seconds=rank.stamps.helper_cpu(),
        )
    if rank.stamps.sees_exchange:
        block = replace(
            block,
            step_exchanges=rank.stamps.windows(),
            step_exchange_delays=tuple(rank.stamps.exchange_delays),
            helper_delay_seconds=rank.stamps.in_windows.delayed,
            helper_window_cpu_seconds=rank.stamps.in_windows.ran,
        )
    if rank.feeds:
        block = replace(
            block,
            wait_seconds=waits[-1] - waits[0],
            step_waits=_differences(waits),
            step_wait_delays=_differences(wait_delays),
        )
    if rank.feeds and not any(feed.uncounted for feed in rank.feeds):
        each = _differences(served)
        block = replace(block, samples=sum(each) or None, step_samples=each)
    return block


def untouched(rank: OwnRank, loops: Loops, step_seconds: float) -> Generator[None, None, BlockDone | None]:
    """The job's first steps, as it was typed, which the ladder's highest rung is held against; none if few fit."""
    fewest, most = _STEPS
    spare = min(_SECONDS, _SHARE * rank.orders.budget) / step_seconds if step_seconds > 0 else most
    ahead = max((feed.depth // feed.per_step for feed in rank.feeds), default=0)
    steps, settle = rank.agree(
        (min(most, int(spare)), min(most, ahead)),
        lambda reports: (min(steps for steps, _ in reports), max(settle for _, settle in reports)),
    )
    if rank.orders.isolated or steps < fewest:
        return None
    for _ in range(settle):
        yield
    return (yield from timed(rank, loops, UNTOUCHED.name, rank.orders.first_round, steps, rank.clock.now()))


def _wait_delay(rank: OwnRank) -> float:
    return sum([feed.wait_delay for feed in rank.feeds])


def _differences(totals: Sequence[N]) -> tuple[N, ...]:
    return tuple(after - before for before, after in itertools.pairwise(totals))
