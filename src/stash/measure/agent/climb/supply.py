"""What batches the blocks of a round get: all the same ones, step for step, drawn anew for every round.

The data blocks read them from the script's loaders. Replays get copies, made once a round in a pass that is not
timed; the same pass brings into memory what a warm block reads, if no cold block has. So what differs between two
rungs is never what they trained on. How batches are read and kept is the feeds' to know.
"""

from __future__ import annotations

from stash.base.ladder import Visit
from stash.measure.agent.climb.plan import Plan
from stash.measure.agent.climb.rank import OwnRank
from stash.measure.agent.climb.sizes import BlockSize
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed

_UNEVEN = 0.05
"""By how much the largest batch of a step may exceed the mean of all ranks without a word."""


class Supply:
    """Sets this rank's feeds to what a block is to get; ``on_device``: a rung replays from the device."""

    def __init__(self, rank: OwnRank, on_device: bool) -> None:
        self._rank = rank
        self._plan: Plan
        self._device = rank.device if on_device else None
        self._round: int | None = None
        self._read = False
        """A cold block has read this round's samples."""
        self._kept = False
        """… and replays have them."""
        if any(feed.kind != "map" for feed in rank.feeds):
            rank.note(
                "batches come from a stream, which can only start over: every round trains on its first ones again, "
                "and they stand for all"
            )

    def gather(self, visit: Visit, number: int, plan: Plan) -> None:
        """Before a block of a round that goes by ``plan``: what replays and warm blocks need is in memory.

        Collective over all ranks, those that sit the block out too: none may begin while another still reads.
        """
        self._plan = plan
        if number != self._round:
            self._round, self._read, self._kept = number, False, False
            for feed in self._rank.feeds:
                feed.begin_round()
        if visit.feed == "cold":
            self._read = True
        elif not self._kept:
            self._kept = True
            for feed in self._rank.feeds:
                self._refill(feed)
            self._rank.agree([] if number > self._rank.orders.first_round else self._sizes(), self._compare)

    def serve(self, visit: Visit) -> None:
        """Every feed of this rank hands out the block's batches from now on; its queue must be drained."""
        size = self._plan.size(visit)
        for feed in self._rank.feeds:
            if visit.reads_data:
                feed.begin(visit.feed, _batches(size, feed) + feed.depth, self._first(size, feed))
            else:
                device = self._device if visit.feed == "resident" else None
                before = visit.lead_in * feed.per_step
                first = self._first(size, feed) - self._kept_from(feed) - before
                feed.begin(visit.feed, before + _batches(size, feed), first, device)

    def _refill(self, feed: Feed) -> None:
        plan = self._plan
        first, warm = self._kept_from(feed), self._first(plan.data, feed)
        replayed = range(first, first + _batches(plan.replay, feed))
        of_warm = range(min(first, warm), warm + _batches(plan.data, feed) + feed.depth)
        feed.refill(replayed if self._read else of_warm, replayed, self._device)

    def _sizes(self) -> list[int]:
        """Bytes of this rank's batches, in the order in which steps take them."""
        return [batches.size(kept) for feed in self._rank.feeds for kept in feed.ring.kept]

    def _compare(self, reports: list[list[int]]) -> None:
        """The leader's part: ranks wait for each other as soon as they exchange, and so for the largest batch."""
        steps = list(zip(*reports, strict=False))
        together = sum(map(sum, steps))
        excess = sum(map(max, steps)) * len(reports) / together - 1 if together else 0.0
        if excess > _UNEVEN:
            self._rank.note(
                f"the ranks' batches differ: the largest of a step has {1 + excess:.2f} times their mean size, and "
                "waiting for the rank that it keeps longest is part of the exchange (interconnect, network)"
            )

    def _first(self, size: BlockSize, feed: Feed) -> int:
        """Where a block begins in the round's batches, so that measured steps are of the same ones in all blocks.

        Cold blocks, which may have the longest way to settle, begin at the first. Below zero if others take longer.
        """
        return (self._plan.cold.settle - size.settle) * feed.per_step

    def _kept_from(self, feed: Feed) -> int:
        """The first of the round's batches that is kept for replays."""
        return max(0, self._first(self._plan.replay, feed))


def _batches(size: BlockSize, feed: Feed) -> int:
    """A block's batches, and one more of a loop that reads a batch ahead."""
    return size.together * feed.per_step + 1
