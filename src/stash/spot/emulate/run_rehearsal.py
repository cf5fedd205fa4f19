"""Rehearses an asynchronous training on this machine: takes away who is revoked, and keeps the run's log.

The head decides; this is what a cloud would do to it. However it ends, there is an account of what happened, and the
servers' checkpoints are where the orders say. Nothing is left running.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from stash.api import Started, find_processes
from stash.core.end_tree import end_at_once
from stash.core.errors import JobError, StashError, UserError
from stash.core.interrupts import follow_requests, postpone_requests
from stash.core.jsonl import Tail, append_row
from stash.core.membership import TOKEN
from stash.core.records.base import utc_now
from stash.core.version import __version__
from stash.spot.emulate.build_rehearsal import Revocation
from stash.spot.emulate.takeovers import takeovers
from stash.spot.fleet_records import FleetPlan
from stash.spot.run_records import (
    LOSS_WINDOW,
    LeaseBooks,
    SpotEvent,
    SpotGround,
    SpotLog,
    SpotUpdates,
)
from stash.spot.train.actors import ON_LOOPBACK, QUIET
from stash.spot.train.run_orders import EVENTS, UPDATES, WISHES, TrainingOrders, write_orders

MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""
_POLL = 0.05
_OVERDUE = 900.0
"""Seconds after its time that a head may take to save everything, before it is given up."""
_GRACE = 120.0
"""Seconds that the head has to save everything when it is asked to stop."""


class TrainingBackend:
    """The head of a training, with all of its actors on this machine."""

    def __init__(self, orders: TrainingOrders, folder: Path) -> None:
        self._folder = folder
        self._orders = orders
        self._head: Started | None = None

    def start(self) -> None:
        """Start the head, which starts everybody else."""
        write_orders(self._folder, self._orders)
        command = (sys.executable, "-m", "stash.spot.train.head", str(self._folder))
        # No process joins without these secrets, and Ray writes none into the home folder. Ray sends its own in the
        # clear, so what servers and workers know each other by is another.
        drawn = {"RAY_AUTH_TOKEN": secrets.token_hex(32), TOKEN: secrets.token_hex(32)}
        own = {**QUIET, MARK: str(self._folder), "RAY_AUTH_MODE": "token", **drawn}
        self._head = Started(command, 0, {**os.environ, **ON_LOOPBACK, **own}, None)

    def vanish(self, name: str) -> None:
        """Take an actor away without a word."""
        append_row(self._folder / WISHES, do="vanish", who=name)

    def status(self) -> int | None:
        """The head's exit status once it has ended, the signal that killed it as a negative number."""
        return None if self._head is None else self._head.poll()

    def head_output(self) -> str:
        """What the head printed: nothing, unless something failed."""
        return "" if self._head is None else self._head.output

    def close(self) -> None:
        """End everything; harmless when done already."""
        with postpone_requests():
            end_at_once(lambda: find_processes(MARK, str(self._folder)))
            if self._head is not None:
                self._head.wait()


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
        kind = UserError if self.exit_code == UserError.exit_code else JobError
        return kind(self.reason)


class Rehearsal:
    """One training on one backend."""

    def __init__(
        self,
        orders: TrainingOrders,
        backend: TrainingBackend,
        folder: Path,
        revocations: Iterable[Revocation],
        listener: Callable[[SpotEvent], None],
        overdue: float = _OVERDUE,
    ) -> None:
        """``listener`` gets every event as it happens; a head that lasts ``overdue`` seconds too long is given up."""
        self._backend = backend
        self._listener = listener
        self._events = Tail(folder / EVENTS)
        self._updates = Tail(folder / UPDATES)
        self._wishes = folder / WISHES
        self._coming = list(revocations)
        self._leaving: list[tuple[float, list[str]]] = []
        """When those will be gone that had notice, in seconds since training began."""
        self.types = {each.name: each.type for each in orders.workers}
        """The machine type of every worker there was, by name."""
        self._there: set[str] = set()
        """Servers and workers that joined and are not gone."""
        self._began: float | None = None
        self._overdue = overdue
        self._limit = math.inf if orders.seconds is None else orders.seconds + overdue
        self._messages: list[dict[str, Any]] = []
        self.account = Account()

    def run(self) -> Account:
        """Run until the head ends; an interruption lets it save everything first. Raises StashError."""
        reason = Account.reason
        died = False
        try:
            try:
                self._backend.start()
                self._follow_head()
            except KeyboardInterrupt:
                reason = "interrupted"
                append_row(self._wishes, do="stop")
                patience = time.monotonic() + _GRACE
                while self._backend.status() is None and time.monotonic() < patience:
                    self._read_events()
                    time.sleep(_POLL)
                self._read_events()
                raise
            self._read_events()
            reason = _explain_death(self._backend.status(), self._backend.head_output())
            died = True
        finally:
            self._backend.close()
            rows = self._updates.read_new_rows()
            self.account = read_account(self._messages, rows, reason, died)
        return self.account

    def _follow_head(self) -> None:
        """Until it ends; raises JobError once it should long have begun, or ended: whatever hangs, a run has an end."""
        started = time.monotonic()
        while self._backend.status() is None:
            follow_requests()
            self._read_events()
            now = time.monotonic()
            if self._began is None and now > started + 2 * self._overdue:
                raise JobError(f"nothing was trained for {2 * self._overdue:g} s")
            if self._began is not None and now > self._began + self._limit:
                raise JobError(
                    f"the head went on {self._overdue:g} s past its time; what the servers saved is kept"
                )
            time.sleep(_POLL)

    def _read_events(self) -> None:
        for message in self._events.read_new_rows():
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
        if self._began is not None:
            self._revoke_due(time.monotonic() - self._began)

    def _revoke_due(self, now: float) -> None:
        for each in [each for each in self._coming if each.at <= now]:
            self._coming.remove(each)
            # Those that are there and have that name, or are of that type.
            names = sorted(name for name in self._there if each.who in (name, self.types.get(name)))
            if each.notice is not None:
                for name in names:
                    append_row(self._wishes, do="notice", who=name, seconds=each.notice)
            self._leaving.append((each.at + (each.notice or 0.0), names))
        for due in [due for due in self._leaving if due[0] <= now]:
            self._leaving.remove(due)
            for name in due[1]:
                self._there.discard(name)
                self._backend.vanish(name)


def _explain_death(status: int | None, printed: str) -> str:
    if status is not None and status < 0:
        return f"the head was killed by {signal.Signals(-status).name}"
    how = "" if status is None else f" (exit status {status})"
    last = (printed.strip().splitlines() or ["it printed nothing"])[-1]
    return f"the head ended unexpectedly{how}: {last}"


def read_account(
    messages: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], reason: str, died: bool
) -> Account:
    """What the head's ``messages`` and its ``rows`` of updates tell; ``reason``: why it ended if it does not say so."""
    columns = {name: tuple(row[name] for row in rows) for name in SpotUpdates.model_fields}
    ending: dict[str, Any] = {"reason": reason, "died": died}
    for message in messages:
        if message["what"] == "ended":
            books = LeaseBooks.model_validate(message["books"])
            reason = message["reason"]
            loss = message["loss"]
            ending = {"reason": reason, "loss": loss, "books": books}
        elif message["what"] == "failed":
            ending = {"reason": message["why"], "exit_code": message["exit_code"]}
    events = tuple(map(SpotEvent.model_validate, messages))
    return Account(events=events, updates=SpotUpdates.model_validate(columns), **ending)


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
        takeovers=takeovers(account.events, account.updates),
        events=account.events,
        updates=account.updates,
        books=account.books,
        goal_loss=plan.loss if orders.loss is None else orders.loss,
    )
