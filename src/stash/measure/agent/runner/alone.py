"""Second opinions, taken while no rank trains: the loaders by themselves, and the gradient exchange by itself.

Blocks tell what a stall costs a step; these tell what a loader or a network can do. When there is time for them, only
``judge`` knows.
"""

from __future__ import annotations

from typing import Any

from stash.core.ladder import Visit
from stash.core.measured import Collective, Rate
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.tally import IDLE, Tally, own_seconds, own_tally
from stash.measure.agent.runner.block_plan import EXCHANGES_ALONE, Plan
from stash.measure.agent.runner.judge import begin_data_block
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope

_PARTS = 4
"""Of the timing of a loader: as many as tell its spread."""
_MIN_SECONDS = 0.03
"""Of such a part."""
_MAX_STEPS = 1024
_MIN_BYTES = 4
"""Of a bucket that tells what an all-reduce takes whatever its size: one number."""


def time_loader(
    rank: OwnRank, visit: Visit, number: int, mode: int, sweeping: bool, plan: Plan
) -> None:
    """Time how fast the loaders of every rank deliver when no training waits for them; the tally counts in ``mode``.

    As much runs in as in a block of ``plan``: what reads on credit at first does so here too.
    """
    feeds, tally = rank.feeds, own_tally()
    size = plan.alone_size(visit, max((feed.workers for feed in feeds), default=0))
    for feed in feeds:
        feed.drain()
    if tally is not None:
        begin_data_block(rank, tally, mode, sweeping)
    for feed in feeds:
        feed.begin(visit.feed, size.total_steps * feed.per_step + feed.depth)
    _read_steps(feeds, size.settle)
    samples, parts = _time_reading(rank, feeds, size.steps, tally)
    for feed in feeds:
        feed.drain()
    if tally is not None:
        tally.set_mode(IDLE)

    # a batch that cannot be counted has no rate, rather than one of zero
    seconds = sum(parts)
    own = (
        Rate(visit.feed, rank.place.rank, number, samples, seconds, parts)
        if samples and seconds >= 0
        else None
    )
    rank.agree(
        own, lambda reports: rank.publish(*(report for report in reports if report is not None))
    )


def _time_reading(
    rank: OwnRank, feeds: list[Feed], steps: int, tally: Tally | None
) -> tuple[int, tuple[float, ...]]:
    """Samples read in parts of as many steps each, and the seconds of each part.

    A stream may hand out at once what it has ready, and then work for long: parts are doubled until one takes long
    enough to tell a rate, and are repeated until they tell its spread, or took long enough without one.
    """
    samples, parts = 0, list[float]()
    while len(parts) < _PARTS and sum(parts) < _PARTS * _MIN_SECONDS:
        began = rank.clock.now() - own_seconds(tally)
        read = _read_steps(feeds, steps)
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


def _read_steps(feeds: list[Feed], steps: int) -> int:
    """Read what ``steps`` steps would from all training loaders; the value counts samples."""
    return sum(feed.consume(feed.per_step) for _ in range(steps) for feed in feeds)


def time_exchange(rank: OwnRank, visit: Visit) -> None:
    """Time a step's gradients' exchange, in the scope in force, when nothing else goes on: the slowest rank's."""
    sizes, _ = replicas.gradient_facts()
    if not sizes:
        return
    group = replicas.group_in_scope(replicas.list_modules()[0])
    empty = [_MIN_BYTES] * len(sizes)
    whole = [
        0.0 if group is None else _all_reduce(sizes, rank, group) for _ in range(EXCHANGES_ALONE)
    ]
    latency = [
        0.0 if group is None else _all_reduce(empty, rank, group) for _ in range(EXCHANGES_ALONE)
    ]

    def write(reports: list[tuple[int, list[float], list[float]]]) -> None:
        ranks = max(size for size, _, _ in reports)
        slowest, least = (
            [max(each) for each in zip(*(r[i] for r in reports), strict=True)] for i in (1, 2)
        )
        for seconds, without_bytes in list(zip(slowest, least, strict=True))[1:]:
            if ranks > 1:
                rank.publish(Collective(visit.scope, ranks, sum(sizes), seconds, without_bytes))

    rank.agree((1 if group is None else group.size(), whole, latency), write)


def _all_reduce(sizes: list[int], rank: OwnRank, group: Any) -> float:
    """Seconds for one all-reduce of every gradient bucket, in order, with nothing else going on."""
    import torch
    import torch.distributed as dist

    whole = torch.zeros(max(sizes) // 4, dtype=torch.float32, device=rank.device)
    # One buffer serves all buckets where a stream serialises them; gloo reduces several at once.
    on_stream = rank.device.type != "cpu"
    buckets = [
        whole[: size // 4] if on_stream else torch.zeros_like(whole[: size // 4]) for size in sizes
    ]
    with scope.bypass():
        dist.all_reduce(torch.zeros(1, device=rank.device), group=group)
        began = rank.clock.synchronize()
        works: list[Any] = [
            dist.all_reduce(bucket, group=group, async_op=True) for bucket in buckets
        ]
        for work in works:
            work.wait()
        return rank.clock.synchronize() - began
