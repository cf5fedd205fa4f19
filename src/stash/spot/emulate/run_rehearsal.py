"""Rehearses an asynchronous training: takes away who is revoked, and keeps the run's log.

The head decides; this is what a cloud would do to it. However it ends, there is an account of what happened, and the
servers' checkpoints are where the orders say.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from stash.core.errors import JobError, StashError, UserError
from stash.core.interrupts import follow_requests
from stash.core.jsonl import Tail, append_row
from stash.core.records.base import utc_now
from stash.core.version import __version__
from stash.spot.emulate.backends import TrainingBackend
from stash.spot.emulate.revocations import RevocationMoment
from stash.spot.fleet_records import FleetPlan
from stash.spot.model.stretches import outages, stretches, takeovers
from stash.spot.run_records import (
    LOSS_WINDOW,
    LeaseBooks,
    SpotEvent,
    SpotGround,
    SpotLog,
    SpotUpdates,
)
from stash.spot.train.run_orders import EVENTS, UPDATES, WISHES, TrainingOrders

_POLL = 0.05
_OVERDUE = 900.0
"""Seconds after its time that a head may take to save everything, before it is given up."""
_GRACE = 120.0
"""Seconds that the head has to save everything when it is asked to stop."""


@dataclass(frozen=True)
class Account:
    """What happened."""

    events: tuple[SpotEvent, ...] = ()
    reason: str = "the head did not say how it ended"
    loss: float | None = None
    books: LeaseBooks | None = None
    died: bool = False
    """Whether the head ended without saying why: killed, as a rule."""
    exit_code: int = 1
    """That of an error, if that is how it ended."""
    updates: SpotUpdates = SpotUpdates()

    @property
    def error(self) -> StashError | None:
        """What to raise once everything is saved."""
        if self.books is not None:
            return None if self.books.wrong is None else JobError(self.books.wrong)
        return (
            UserError(self.reason)
            if self.exit_code == UserError.exit_code
            else JobError(self.reason)
        )


def read_account(
    messages: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], default: Account
) -> Account:
    """What the head's ``messages`` and its ``rows`` of updates tell; ``default``: how it ended if it does not say so."""
    columns: dict[str, Any] = {
        name: tuple(row[name] for row in rows) for name in SpotUpdates.model_fields
    }
    events = tuple(map(SpotEvent.model_validate, messages))
    account = replace(default, events=events, updates=SpotUpdates(**columns))
    for message in messages:
        if message["what"] == "ended":
            books = LeaseBooks.model_validate(message["books"])
            reason, loss = message["reason"], message["loss"]
            account = replace(account, reason=reason, loss=loss, books=books, died=False)
        elif message["what"] == "failed":
            code = message["exit_code"]
            account = replace(account, reason=message["why"], exit_code=code, died=False)
    return account


class Rehearsal:
    """One training on one backend."""

    def __init__(
        self,
        orders: TrainingOrders,
        backend: TrainingBackend,
        folder: Path,
        coming: Sequence[RevocationMoment],
        listener: Callable[[SpotEvent], None],
        overdue: float = _OVERDUE,
    ) -> None:
        """``listener`` gets every event as it happens; a head that lasts ``overdue`` seconds too long is given up."""
        self._backend, self._listener = backend, listener
        self._coming = list(coming)
        self._events, self._updates = Tail(folder / EVENTS), Tail(folder / UPDATES)
        self._wishes = folder / WISHES
        self.types = {each.name: each.type for each in orders.workers}
        """The machine type of every worker there was, by name."""
        self._there: set[str] = set()
        """Servers and workers that joined and are not gone."""
        self._noticed: dict[str, list[str]] = {}
        self._began: float | None = None
        self._overdue, self._started = overdue, time.monotonic()
        self._limit = math.inf if orders.seconds is None else orders.seconds + overdue
        self._messages: list[dict[str, Any]] = []
        self.account = Account()

    def run(self) -> Account:
        """Run until the head ends; an interruption lets it save everything first. Raises StashError."""
        default = Account()
        try:
            try:
                self._backend.start()
                self._started = time.monotonic()
                while self._backend.running():
                    follow_requests()
                    self._read_events()
                    # Raise JobError once the head should long have begun, or ended: whatever
                    # hangs, a run has an end.
                    if self._began is None and time.monotonic() > self._started + 2 * self._overdue:
                        raise JobError(f"nothing was trained for {2 * self._overdue:g} s")
                    if self._began is not None and time.monotonic() > self._began + self._limit:
                        raise JobError(
                            f"the head went on {self._overdue:g} s past its time; what the servers saved is kept"
                        )
                    time.sleep(_POLL)
            except KeyboardInterrupt:
                default = Account(reason="interrupted")
                self._stop()
                raise
            self._read_events()
            status, printed = self._backend.status(), self._backend.head_output().strip()
            if status is not None and status < 0:
                words = f"the head was killed by {signal.Signals(-status).name}"
            else:
                how = "" if status is None else f" (exit status {status})"
                words = f"the head ended unexpectedly{how}: {printed.splitlines()[-1] if printed else 'it printed nothing'}"
            default = Account(reason=words, died=True)
        finally:
            self._backend.close()
            self.account = read_account(self._messages, self._updates.read_new_rows(), default)
        return self.account

    def _stop(self) -> None:
        append_row(self._wishes, do="stop")
        patience = time.monotonic() + _GRACE
        while self._backend.running() and time.monotonic() < patience:
            self._read_events()
            time.sleep(_POLL)
        self._read_events()

    def _read_events(self) -> None:
        for message in self._events.read_new_rows():
            self._handle_event(message)
        if self._began is None:
            return
        while self._coming and time.monotonic() - self._began >= self._coming[0].at:
            self._revoke(self._coming.pop(0))

    def _handle_event(self, message: dict[str, Any]) -> None:
        event = SpotEvent.model_validate(message)
        self._messages.append(message)
        if event.what == "began":
            self._began = time.monotonic()
        elif event.what in ("joined", "server joined"):
            self._there.add(event.who)
        elif event.what in ("left", "lost", "server lost"):
            self._there.discard(event.who)
        elif event.what == "wanted" and event.type is not None and event.type != "server":
            self.types[event.who] = event.type
        self._listener(event)

    def _revoke(self, moment: RevocationMoment) -> None:
        if moment.what == "notice":
            self._noticed[moment.who] = self._find_members(moment.who)
            for name in self._noticed[moment.who]:
                append_row(self._wishes, do="notice", who=name, seconds=moment.seconds)
            return
        for name in self._noticed.pop(moment.who, None) or self._find_members(moment.who):
            self._there.discard(name)
            self._backend.vanish(name)

    def _find_members(self, who: str) -> list[str]:
        """Those that are there and have that name, or are of that type."""
        return sorted(name for name in self._there if who in (name, self.types.get(name)))


def spot_log(
    rehearsal: Rehearsal,
    named: tuple[Path, str, str],
    plan: FleetPlan,
    orders: TrainingOrders,
) -> SpotLog:
    """The account of a run as the log that is kept of it.

    ``named``: the plan's file, the job, and where it was played.
    """
    account, (path, job, on) = rehearsal.account, named
    times = account.updates.seconds
    return SpotLog(
        stash_version=__version__,
        created=utc_now(),
        plan=str(path),
        job=job,
        on=cast(SpotGround, on),
        slower=1.0,
        servers=len(orders.servers),
        reason=account.reason,
        seconds=times[-1] - times[0] if len(times) > 1 else None,
        loss=account.loss,
        loss_window=LOSS_WINDOW,
        stretches=stretches(
            account.updates,
            rehearsal.types,
            outages(account.events, times[-1] if times else 0.0),
        ),
        takeovers=takeovers(account.events, account.updates),
        events=account.events,
        updates=account.updates,
        books=account.books,
        goal_loss=plan.loss if orders.loss is None else orders.loss,
    )
