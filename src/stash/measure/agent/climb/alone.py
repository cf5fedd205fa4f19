"""Second opinions, taken while nobody trains: the loaders by themselves, and the gradient exchange by itself."""

from __future__ import annotations

from typing import Any

from stash.base.ladder import Visit
from stash.measure.agent.climb import coldness
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.climb.sizes import BlockSize
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.data.tally import IDLE, own_seconds, own_tally
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope
from stash.measure.run.messages import ExchangeTimed, LoaderTimed

_TRIES = 3
"""Of the exchange; the first one makes connections and does not count."""


def time_loader(rank: OwnRank, visit: Visit, number: int, mode: int, sweeping: bool, size: BlockSize) -> None:
    """How fast the loaders of every rank deliver when no training waits for them; the tally counts in ``mode``.

    ``size``: of the visit's block. What reads on credit at first does so here too.
    """
    feeds, tally = rank.feeds, own_tally()
    workers = max(feed.workers for feed in feeds)
    lead_in = max(size.settle, workers)  # steps until the first burst of the workers is over
    steps = max(2 * workers, 2)
    for feed in feeds:
        feed.drain()
    if tally is not None:
        coldness.begin(rank, tally, mode, sweeping)
    for feed in feeds:
        feed.begin(visit.feed, (lead_in + steps) * feed.per_step + feed.depth, again=True)
    _consume(feeds, lead_in)
    began = rank.clock.now() - own_seconds(tally)
    samples = _consume(feeds, steps)
    seconds = rank.clock.now() - own_seconds(tally) - began
    for feed in feeds:
        feed.drain()
    if tally is not None:
        tally.set_mode(IDLE)

    def write(reports: list[LoaderTimed]) -> None:
        for report in reports:
            if report.samples:  # a batch that cannot be counted has no rate, rather than one of zero
                rank.tell(report)

    rank.agree(LoaderTimed(visit.feed, rank.place.rank, number, samples, seconds), write)


def _consume(feeds: list[Feed], steps: int) -> int:
    """Read what ``steps`` steps would from all training loaders; the value counts samples."""
    return sum(feed.consume(feed.per_step) for _ in range(steps) for feed in feeds)


def time_exchange(rank: OwnRank, visit: Visit) -> None:
    """How long one step's gradients take to exchange when nothing else goes on: of the slowest rank."""
    place = rank.place
    sizes, _ = replicas.gradient_facts()
    if not sizes:
        return
    within_node = visit.scope == "node" and place.nodes > 1
    ranks = place.ranks_per_node if within_node else place.world_size
    seconds = [_all_reduce(sizes, rank, within_node) for _ in range(_TRIES)]

    def write(reports: list[list[float]]) -> None:
        for taken in list(zip(*reports, strict=True))[1:]:
            rank.tell(ExchangeTimed(visit.scope, ranks, sum(sizes), max(taken)))

    rank.agree(seconds, write)


def _all_reduce(sizes: list[int], rank: OwnRank, within_node: bool) -> float:
    """Seconds for one all-reduce of every gradient bucket, in order, with nothing else going on."""
    import torch
    import torch.distributed as dist

    group = rank.control.node_group if within_node else None
    if within_node and group is None:
        return 0.0  # the only rank of its node; the others' times count
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
