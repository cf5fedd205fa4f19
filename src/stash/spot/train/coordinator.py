"""The one place that knows who trains: hands out leases, keeps the books, and never a gradient.

Called by many at once, so everything is done under one lock; whoever has to wait (for a server that is being
replaced) waits here. Knows no Ray, no tensors. Time is a clock that is given to it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stash.core.units import format_count
from stash.spot.run_records import LeaseBooks
from stash.spot.train.ledger import DataLease, LeaseLedger, Range, Spans, UpdateReport, lease_tag
from stash.spot.train.run_orders import Address

_LOOK_AGAIN = 0.5
_MARGIN = 1.5
"""Iterations that have to fit before a worker goes, so that its last lease is not lost."""
_PATIENCE = 130.0
_OVERDUE = 3.0
"""Seconds at the end for all leases, more than it takes to notice that a worker hangs and to do its lease again; and
how many of the longest iterations, if those are more.
"""


@dataclass(frozen=True)
class UpdateDone:
    """One update, as the run's log keeps it."""

    seconds: float
    """Since the coordinator began."""
    worker: str
    samples: int
    staleness: int
    loss: float


@dataclass(frozen=True)
class _WorkerState:
    """A worker that is in."""

    samples: int
    """Of a lease."""
    leaves: float | None = None
    asked: float | None = None
    took: float = 0.0
    """Seconds of its last iteration."""
    lease: DataLease | None = None
    """That it trains on; what else it has it reads ahead."""


@dataclass(frozen=True)
class NotFinite:
    """A worker computed a loss or a gradient that is infinite or no number, and no server applied it."""

    worker: str
    lease: DataLease
    loss: float


class Coordinator:
    """Coordinates one training."""

    def __init__(
        self,
        servers: int,
        batch: int,
        key: bytes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``batch``: samples at most of a lease that has to be cut again; ``key``: what leases are signed with."""
        self._key = key
        self._failure: NotFinite | None = None
        self._clock = clock
        self._began = clock()
        self._batch = batch
        self._ledger = LeaseLedger()
        self._addresses: list[Address | None] = [None] * servers
        self._workers: dict[str, _WorkerState] = {}
        self._rows: list[UpdateDone] = []
        self._refused = False
        self._redoes: bool | None = None
        """Whether workers take over at the end what others leave; ``None`` until it ends."""
        self._changed = threading.Condition()

    def join(self, worker: str, samples: int) -> None:
        """A worker that will take leases of so many samples."""
        with self._changed:
            self._workers[worker] = _WorkerState(samples)

    def servers(self) -> tuple[Address, ...]:
        """Give the addresses of all servers; waits while one of them has none. Empty: the training is over."""
        with self._changed:
            while any(address is None for address in self._addresses) and not self._is_over():
                self._changed.wait(_LOOK_AGAIN)
            if self._is_over():
                return ()
            return tuple(address for address in self._addresses if address is not None)

    def next_lease(self, worker: str, finished: UpdateReport | None) -> DataLease | None:
        """Book what is finished, and give the next lease; ``None`` if the worker has to end."""
        with self._changed:
            if finished is not None:
                self._book(worker, finished)
            if not self._ledger.worker_leases(worker):
                # At the end everybody waits for what others have in hand, which somebody has to
                # take over if they fail.
                while (
                    not self._ends(worker) and self._redoes is not None and not self._ledger.waiting
                ):
                    self._changed.wait(_LOOK_AGAIN)
            if self._ends(worker):
                self._part(worker)
                return None
            state = self._workers[worker]
            held = self._ledger.worker_leases(worker)
            lease = held[0] if held else self._ledger.issue_lease(worker, state.samples)
            self._workers[worker] = replace(state, asked=self._clock(), lease=lease)
            return replace(lease, tag=lease_tag(self._key, worker, lease))

    def later(self, worker: str, most: int) -> tuple[DataLease, ...]:
        """The leases that a worker is given next, unless they are taken back, at most so many: to read them ahead."""
        with self._changed:
            state = self._workers.get(worker)
            if state is None:
                return ()
            ahead = [lease for lease in self._ledger.worker_leases(worker) if lease != state.lease]
            while len(ahead) < most and self._redoes is None and state.leaves is None:
                ahead.append(self._ledger.issue_lease(worker, state.samples))
            return tuple(ahead)

    def _book(self, worker: str, report: UpdateReport) -> None:
        now = self._clock()
        state = self._workers.get(worker)
        if state is not None and state.asked is not None:
            self._workers[worker] = replace(state, took=now - state.asked)
        if not report.applied:
            self._ledger.return_lease(worker, report.lease)
            self._refused |= report.refused
            if not report.finite and self._failure is None:
                self._failure = NotFinite(worker, report.lease, report.loss)
        elif self._ledger.complete_lease(worker, report.lease):
            lease = report.lease
            self._rows.append(
                UpdateDone(now - self._began, worker, lease.samples, report.staleness, report.loss)
            )
        self._changed.notify_all()

    def _ends(self, worker: str) -> bool:
        state = self._workers.get(worker)
        if state is None or self._is_over():
            return True
        return state.leaves is not None and self._clock() + _MARGIN * state.took > state.leaves

    def _is_over(self) -> bool:
        unfinished = self._ledger.out or self._ledger.waiting
        return self._redoes is not None and not (unfinished and self._redoes)

    def _part(self, worker: str) -> tuple[DataLease, ...]:
        self._workers.pop(worker, None)
        lost = self._ledger.drop_worker(worker)
        self._changed.notify_all()
        return lost

    def set_address(self, server: int, address: Address | None) -> None:
        """Record the address of a server from now on; ``None``: it has none until its successor is there."""
        with self._changed:
            self._addresses[server] = address
            self._changed.notify_all()

    def note_leaving(self, worker: str, seconds: float) -> None:
        """A worker will be gone in so many seconds: it gets no lease that it could not finish."""
        with self._changed:
            if worker in self._workers:
                leaves = self._clock() + seconds
                self._workers[worker] = replace(self._workers[worker], leaves=leaves)
                self._changed.notify_all()

    def remove_worker(self, worker: str) -> int:
        """A worker is gone; how many leases it left to others."""
        with self._changed:
            return len(self._part(worker))

    def reconcile(self, applied: Sequence[Sequence[Range]]) -> int:
        """Believe what the servers have applied: one was set back, or all resume. How many samples come again."""
        with self._changed:
            self._refused = False
            again = self._ledger.reconcile([Spans(each) for each in applied], self._batch)
            self._changed.notify_all()
            return again

    def end(self, redo: bool) -> float:
        """Give no new samples from now on; with ``redo`` workers stay until all that were given are trained on.

        Returns for how many seconds that is to be waited for; 0 once it is not.
        """
        with self._changed:
            self._redoes = redo
            begun = {state.lease for state in self._workers.values()}
            self._ledger.withdraw([lease for lease in self._ledger.out if lease not in begun])
            self._changed.notify_all()
            longest = max((each.took for each in self._workers.values()), default=0.0)
            return 0.0 if self._is_over() else max(_PATIENCE, _OVERDUE * longest)

    def take_updates(self) -> tuple[list[UpdateDone], bool, NotFinite | None]:
        """The updates since the last call, whether a server refused a lease that has to be cut again, and the first
        gradients that were not finite.
        """
        with self._changed:
            rows = self._rows
            self._rows = []
            return rows, self._refused, self._failure

    def books(self) -> LeaseBooks:
        """The ledger, audited."""
        with self._changed:
            found = self._ledger
            wrong = found.audit()
            lacking = sum(lease.samples for lease in (*found.out, *found.waiting))
            if wrong is None and lacking and self._redoes is not None:
                wrong = f"{format_count(lacking, 'sample')} that workers took are not in the model: none handed them in"
            return LeaseBooks(
                issued=found.issued,
                done=found.done_samples,
                out=len(found.out),
                waiting=len(found.waiting),
                reissued=found.counts["reissued"],
                repeated=found.counts["repeated"],
                wrong=wrong,
            )

    def seconds(self) -> float:
        """Since it began: the clock of its updates."""
        return self._clock() - self._began
