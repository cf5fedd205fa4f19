"""Who trains on which samples, and which were trained on."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from stash.core.membership import signature

Range = tuple[int, int]
"""From the first sample to the one after the last."""


class Spans:
    """Samples of an endless stream that were trained on, as few disjoint ranges as it takes.

    Every server shard keeps one, so that what a worker sends twice is distinguished from what is new.
    """

    def __init__(self, ranges: Iterable[Sequence[int]] = ()) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.add(start, stop)

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(zip(self._starts, self._stops, strict=True))

    @property
    def samples(self) -> int:
        return sum(self._stops) - sum(self._starts)

    def add(self, start: int, stop: int) -> None:
        """Raises ValueError if the range is empty, or some of it was there: that would count it twice."""
        if not 0 <= start < stop:
            raise ValueError(f"{start} to {stop} is no range of samples")
        if self.touches(start, stop):
            raise ValueError(f"some of the samples {start} to {stop} were there before")
        at = bisect_left(self._starts, start)
        joins_left = at > 0 and self._stops[at - 1] == start
        joins_right = at < len(self._starts) and self._starts[at] == stop
        if joins_left and joins_right:
            self._stops[at - 1] = self._stops.pop(at)
            del self._starts[at]
        elif joins_left:
            self._stops[at - 1] = stop
        elif joins_right:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._stops.insert(at, stop)

    def holds(self, start: int, stop: int) -> bool:
        """Whether all of the range is there."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and stop <= self._stops[at]

    def touches(self, start: int, stop: int) -> bool:
        """Whether any of the range is there."""
        at = bisect_left(self._starts, stop) - 1
        return at >= 0 and self._stops[at] > start

    def gaps(self, end: int) -> tuple[Range, ...]:
        """What of the first ``end`` samples is not there."""
        edges = [0, *(edge for pair in self.ranges for edge in pair), end]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return tuple((start, min(stop, end)) for start, stop in pairs if start < min(stop, end))


def cut_range(start: int, stop: int, edges: Iterable[int], most: int) -> list[Range]:
    """The range in pieces of at most ``most`` samples, none of which has one of ``edges`` inside."""
    inside = sorted({start, stop, *(edge for edge in edges if start < edge < stop)})
    pieces = []
    for begin, end in pairwise(inside):
        pieces += [(at, min(at + most, end)) for at in range(begin, end, most)]
    return pieces


@dataclass(frozen=True, order=True)
class DataLease:
    """Samples ``start`` to ``stop`` of the stream, which one worker trains on in one update."""

    start: int
    stop: int
    tag: bytes = field(default=b"", compare=False, repr=False)
    """The coordinator's signature, which says to whom it gave the lease; servers take no gradients without it."""

    @property
    def samples(self) -> int:
        return self.stop - self.start


def lease_tag(key: bytes, worker: str, lease: DataLease) -> bytes:
    """Sign that a worker was given a lease."""
    return signature(key, worker.encode(), b"%d" % lease.start, b"%d" % lease.stop)


@dataclass(frozen=True)
class UpdateReport:
    """What became of a lease."""

    lease: DataLease
    applied: bool
    """By every server, now or before."""
    refused: bool
    """By a server that had part of it: the lease has to be cut again."""
    loss: float
    staleness: int
    """Updates that others made between reading the parameters and this one's turn; of the server with most."""
    finite: bool = True
    """``False``: the loss, or a gradient, was infinite or no number, and no server got it."""


class LeaseLedger:
    """Every sample below ``issued`` is done, out with a worker, or waiting to be given out again.

    The servers' word is final: a lease is done when every shard has applied it, and each shard applies a sample once
    (``Spans``). So the ledger may forget, doubt, and ask again for what was done already; it may never give up on a
    sample. Knows nothing of time, machines or gradients.
    """

    def __init__(self) -> None:
        self.issued = 0
        self.counts = Counter[str]()
        """*reissued*: leases that were given out again; *repeated*: reports that came too late to be believed."""
        self._done = Spans()
        self._out: dict[DataLease, str] = {}
        self._waiting: list[DataLease] = []
        self._tried: set[DataLease] = set()
        """Leases that somebody had before: a shard may hold them."""

    def issue_lease(self, worker: str, samples: int) -> DataLease:
        """The next lease: one that was lost, whatever its size, or the stream's next ``samples``."""
        if self._waiting:
            lease = self._waiting.pop(0)
            self.counts["reissued"] += 1
        else:
            lease = DataLease(self.issued, self.issued + samples)
            self.issued = lease.stop
        self._out[lease] = worker
        return lease

    def complete_lease(self, worker: str, lease: DataLease) -> bool:
        """Every shard has applied it. Not believed of a lease that is not, or no longer, this worker's: a shard
        may have been set back since. It then comes again, and the shards will know.
        """
        if self._out.get(lease) != worker:
            self.counts["repeated"] += 1
            return False
        del self._out[lease]
        self._done.add(lease.start, lease.stop)
        return True

    def return_lease(self, worker: str, lease: DataLease) -> None:
        """Take back a lease that its worker could not finish; another worker will."""
        if self._out.get(lease) == worker:
            del self._out[lease]
            self._put_back([lease])

    def drop_worker(self, worker: str) -> tuple[DataLease, ...]:
        """What a worker had when it went, which waits for others from now on."""
        gone = [lease for lease, holder in self._out.items() if holder == worker]
        for lease in gone:
            del self._out[lease]
        self._put_back(gone)
        return tuple(gone)

    def worker_leases(self, worker: str) -> list[DataLease]:
        """A worker's leases, in the order in which it took them."""
        return [lease for lease, holder in self._out.items() if holder == worker]

    def withdraw(self, leases: Sequence[DataLease]) -> None:
        """Take back leases that nobody has begun; what they leave of the stream's end was never given to anybody."""
        for lease in sorted(leases, reverse=True):
            del self._out[lease]
            if lease.stop == self.issued and lease not in self._tried:
                self.issued = lease.start
            else:
                self._put_back([lease])

    def reconcile(self, applied: Sequence[Spans], most: int) -> int:
        """Believe the shards, some of which were set back or resumed: what any of them lacks is to be done again, in
        leases of at most ``most`` samples that each shard holds whole or not at all. Returns how many samples of
        what was done that makes. Leases that are out count for nothing any more.
        """
        before = self._done
        self.issued = max([self.issued, *(stop for spans in applied for _, stop in spans.ranges)])
        edges = {edge for spans in applied for pair in spans.ranges for edge in pair}
        edges.update(
            edge for lease in (*self._out, *self._waiting) for edge in (lease.start, lease.stop)
        )
        self._done = _held_by_all(applied, self.issued)
        pieces = [
            piece for gap in self._done.gaps(self.issued) for piece in cut_range(*gap, edges, most)
        ]
        self._waiting = [DataLease(*piece) for piece in pieces]
        self._out = {}
        self._tried.update(self._waiting)
        return before.samples - _held_by_all([before, self._done], self.issued).samples

    @property
    def out(self) -> dict[DataLease, str]:
        return dict(self._out)

    @property
    def waiting(self) -> tuple[DataLease, ...]:
        return tuple(self._waiting)

    @property
    def done_samples(self) -> int:
        return self._done.samples

    def audit(self) -> str | None:
        """What is wrong with the books, if anything: a sample that no worker has, or that two have."""
        seen = Spans(self._done.ranges)
        for lease in (*self._out, *self._waiting):
            if seen.touches(lease.start, lease.stop):
                return f"the samples {lease.start} to {lease.stop} are in the books twice"
            seen.add(lease.start, lease.stop)
        gaps = seen.gaps(self.issued)
        return f"no worker has the samples {gaps[0][0]} to {gaps[0][1]}" if gaps else None

    def _put_back(self, leases: list[DataLease]) -> None:
        self._waiting = sorted([*self._waiting, *leases])
        self._tried.update(leases)


def _held_by_all(applied: Sequence[Spans], end: int) -> Spans:
    missing = sorted(gap for spans in applied for gap in spans.gaps(end))
    found = Spans()
    at = 0
    for start, stop in [*missing, (end, end)]:
        if at < start:
            found.add(at, start)
        at = max(at, stop)
    return found
