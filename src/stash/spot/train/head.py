"""Runs on the head: starts servers and workers, follows them, replaces who goes, and logs all of it.

``python -m stash.spot.train.head FOLDER``. It decides who is replaced, at once and like with like; machines are the
business of whoever started it (a rehearsal, a renter), who reads in the log which one is wanted, and without whom it
ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stash.api import lock_file
from stash.core.errors import JobError, StashError, UserError, one_line
from stash.core.jsonl import Tail, append_row
from stash.spot.run_records import LOSS_WINDOW, mean_loss
from stash.spot.train.run_orders import (
    EVENTS,
    UPDATES,
    WISHES,
    TrainingOrders,
    WorkerPlace,
    read_orders,
)

if TYPE_CHECKING:
    from stash.spot.train.actors import ActorFleet
    from stash.spot.train.coordinator import UpdateDone

_POLL = 0.1
_ARRIVAL_SECONDS = 300.0
"""After which a server that is still not there will not come."""
DESERTED_SECONDS = 1800.0
"""Without any worker, until a rented head ends too, and its machine with it: nobody may be left who would end it."""
SAVE_SECONDS = 600.0
"""That servers may take to write a large checkpoint at the end."""
_GRACE = 15.0
_END_SECONDS = 90.0
"""Seconds at the end that workers have to leave, and for a server's successor and what others left undone."""
_END_TRIES = 3
"""Times that a last checkpoint is begun again because a server went."""


@dataclass(frozen=True)
class Member:
    """A server or a worker, as far as the head knows."""

    place: WorkerPlace
    role: Literal["server", "worker"] = "worker"
    state: Literal["starting", "there", "gone"] = "starting"
    address: Any = None
    """Of a server that is there."""
    has_successor: bool = False
    """Whether another one was asked for in its place."""


class TrainingHead:
    """One training, from the first actor to the last."""

    def __init__(self, orders: TrainingOrders, folder: Path, fleet: ActorFleet) -> None:
        self._orders = orders
        self._fleet = fleet
        self._folder = folder
        self._wishes = Tail(folder / WISHES)
        # before the clock is read: the first answer may take seconds
        since = float(fleet.ask("seconds"))
        self._zero = time.monotonic() - since
        self._servers = list(orders.servers)
        self._members: dict[str, Member] = {}
        """All there ever were, by name."""
        self._seen = dict.fromkeys(("servers", "workers"), time.monotonic())
        """When all servers, and any worker, were last there."""
        self._made = {"server": len(orders.servers), "worker": len(orders.workers)}
        self._last: deque[UpdateDone] = deque(maxlen=LOSS_WINDOW)
        self._began: float | None = None
        self._saved = 0.0
        self._saving: float | None = None
        """When a checkpoint was begun that is not known to be whole."""
        self._stop = False
        self._diverged: str | None = None
        """Why nothing comes of training on."""
        self._parent = os.getppid()

    def run(self) -> None:
        """Run until the training is over, however that comes about."""
        for number, name in enumerate(self._servers):
            self._start_server(name, number)
        for place in self._orders.workers:
            self._start_worker(place)
        while (reason := self._end_reason()) is None:
            for change in self._fleet.changes(_POLL):
                self._handle_change(*change)
            for wish in self._wishes.read_new_rows():
                if wish["do"] == "stop":
                    self._stop = True
                else:
                    self._move(wish.get("who", ""), wish["do"], wish.get("seconds"))
            self._end_hanging()
            self._follow()
            if self._saving is not None:
                self._take_saved(0.0)  # training does not wait for a slow disk
            elif (
                self._began is not None
                and time.monotonic() - self._saved >= self._orders.checkpoint_seconds
            ):
                self._begin_saving()
        self._finish(reason)

    def _handle_change(self, name: str, arrived: bool, answer: Any) -> None:
        is_error = isinstance(answer, Exception)
        if is_error and not self._fleet.is_gone(answer):
            raise self._fleet.describe_error(name, answer)
        self._move(name, "arrived" if arrived else "gone" if is_error else "left", answer)

    def _move(self, name: str, event: str, fact: Any) -> None:
        """What happened to a member, by the table of transitions; nothing where it is gone, or has no such event."""
        member = self._members.get(name)
        if member is None or member.state == "gone":
            return
        transition = _TRANSITIONS.get((member.role, event))
        if transition is not None:
            state, act = transition
            self._members[name] = replace(member, state=state or member.state)
            act(self, name, fact)

    def _server_came(self, name: str, answer: Any) -> None:
        address, version, skipped = answer
        self._members[name] = replace(self._members[name], address=address)
        self._emit("server joined", name, version=version, told=list(skipped))
        again = self._reconcile()
        if again is None:
            return  # another one is missing or just going; its successor brings us here again
        if again:
            self._emit("rolled back", name, samples=again)
        for number, each in enumerate(self._servers):
            self._fleet.ask("set_address", number, self._members[each].address)

    def _has_servers(self) -> bool:
        """Whether all of them are there."""
        return all(self._members[name].state == "there" for name in self._servers)

    def _has_workers(self, *states: str) -> bool:
        """Whether any worker is in one of these states."""
        members = self._members.values()
        return any(each.role == "worker" and each.state in states for each in members)

    def _reconcile(self) -> int | None:
        """Believe what the servers have applied: how many samples come again; ``None`` where one is missing."""
        applied = self._fleet.applied_ranges(self._servers) if self._has_servers() else None
        if applied is None:
            return None
        again: int = self._fleet.ask("reconcile", applied)
        return again

    def _server_went(self, name: str, _: Any) -> None:
        number = self._servers.index(name)
        self._fleet.ask("set_address", number, None)
        self._emit("server lost", name)
        self._servers[number] = successor = self._make_name("server")
        self._emit("wanted", successor, instead_of=name, type="server")
        self._start_server(successor, number)

    def _worker_came(self, name: str, _: Any) -> None:
        self._emit("joined", name, type=self._members[name].place.type)

    def _worker_left(self, name: str, updates: Any) -> None:
        self._fleet.ask("remove_worker", name)
        self._emit("left", name, updates=updates)

    def _worker_went(self, name: str, _: Any) -> None:
        self._emit("lost", name, leases=self._fleet.ask("remove_worker", name))
        if self._orders.replace or self._stop:
            self._replace_worker(name)
        else:  # whoever rents the machine may get another, which has the same name
            self._start_worker(self._members[name].place)

    def _worker_noticed(self, name: str, seconds: Any) -> None:
        self._emit("notice", name, seconds=seconds)
        self._fleet.ask("note_leaving", name, seconds)
        self._replace_worker(name)

    def _end_hanging(self) -> None:
        """Ray tells of an actor that is gone, and not of one that is stopped."""
        for name in self._fleet.end_hanging():
            self._emit("hangs", name)

    def _kill(self, name: str, _: Any) -> None:
        self._fleet.kill(name)

    def _start_server(self, name: str, number: int) -> None:
        self._members[name] = Member(WorkerPlace(name, "server", 0), "server")
        self._fleet.start_server(name, number)

    def _start_worker(self, place: WorkerPlace) -> None:
        self._members[place.name] = Member(place)
        self._fleet.start_worker(place)

    def _replace_worker(self, name: str) -> None:
        """Like with like, once for each that goes; none while everything ends."""
        if not self._orders.replace or self._stop or self._members[name].has_successor:
            return
        self._members[name] = replace(self._members[name], has_successor=True)
        successor = replace(self._members[name].place, name=self._make_name("worker"))
        self._emit("wanted", successor.name, instead_of=name, type=successor.type)
        self._start_worker(successor)

    def _make_name(self, role: str) -> str:
        self._made[role] += 1
        return f"{role}{self._made[role]}"

    def _emit(self, what: str, who: str, **facts: Any) -> None:
        append_row(
            self._folder / EVENTS, at=time.monotonic() - self._zero, what=what, who=who, **facts
        )

    def _follow(self) -> None:
        rows, refused, failure = self._fleet.ask("take_updates")
        for row in rows:
            self._last.append(row)
            append_row(self._folder / UPDATES, **row.__dict__)
        if rows and self._began is None:
            self._began = self._saved = time.monotonic()
            self._emit("began", "")
        if failure is not None and self._diverged is None:
            lease = failure.lease
            self._diverged = (
                f"the gradients of {failure.worker} on the samples {lease.start} to {lease.stop} are not finite (loss "
                f"{failure.loss:g}), and were not applied: the training diverges, or these samples are bad; try a lower "
                "learning rate or clipped gradients, and look at the data"
            )
        if refused:
            self._reconcile()

    def _begin_saving(self) -> None:
        if self._has_servers():
            self._saving = time.monotonic()
            self._fleet.begin_saving(self._servers)

    def _take_saved(self, seconds: float) -> bool:
        """Whether the checkpoint under way is written, waiting so long for it."""
        written = self._fleet.has_saved(seconds)
        if self._saving is None or written is False:
            return False
        if written:
            self._saved = time.monotonic()
            self._emit("checkpoint", "", seconds=self._saved - self._saving)
        self._saving = None
        return bool(written)

    @property
    def running_loss(self) -> float | None:
        """The mean over the last updates; ``None`` before there are as many."""
        known = [(row.loss, row.samples) for row in self._last]
        return mean_loss(known) if len(known) == LOSS_WINDOW else None

    def _end_reason(self) -> str | None:
        orders = self._orders
        loss = self.running_loss
        now = time.monotonic()
        if self._has_servers():
            self._seen["servers"] = now
        elif now - self._seen["servers"] > _ARRIVAL_SECONDS:
            missing = next(each for each in self._servers if self._members[each].state != "there")
            raise JobError(
                f"{missing} did not come within {_ARRIVAL_SECONDS:g} s; what was saved is kept"
            )
        if self._has_workers("there"):
            self._seen["workers"] = now
        elif not orders.replace and now - self._seen["workers"] > DESERTED_SECONDS:
            return f"no worker was there for {DESERTED_SECONDS / 60:.0f} min"
        if self._diverged is not None:
            return self._diverged
        if self._stop:
            return "interrupted"
        if os.getppid() != self._parent:
            return "the process that started it is gone"
        if orders.loss is not None and loss is not None and loss <= orders.loss:
            return "loss reached"
        if orders.seconds is not None and self._began is not None:
            return "time is up" if now - self._began >= orders.seconds else None
        return None

    def _finish(self, reason: str) -> None:
        """Let workers end what they are at, save all of it, and say how the books stand."""
        self._stop = True
        books, missing = self._end_training()
        # a server that goes while it saves takes with it what it applied since the checkpoint before
        for _ in range(_END_TRIES):
            if missing is not None or not self._await_successors():
                break
            books, missing = self._end_training()
        if missing is None:
            unchecked = "a server was missing at the end, so they could not be checked"
            books["wrong"] = books["wrong"] or unchecked
        elif missing and books["wrong"] is None:
            books["wrong"] = f"{missing} samples count as done that some server never applied"
        if self._diverged is not None:
            raise JobError(f"{self._diverged}; what was trained before is kept")
        self._emit("ended", "", reason=reason, loss=self.running_loss, books=books)

    def _end_training(self) -> tuple[dict[str, Any], int | None]:
        """Have all that was given out trained on, and save it: the books, and the samples that some server lacks.

        ``None`` samples: a server went before everything was saved.
        """
        # Wait for workers a little, for a server's successor and what others left undone longer.
        began = time.monotonic()
        while True:
            patience = self._fleet.ask("end", self._diverged is None)
            is_whole = self._has_servers()
            awaited = ("starting", "there") if patience else ("there",)
            last = max(patience, _GRACE if is_whole else _END_SECONDS)
            is_over = is_whole and not self._has_workers(*awaited)
            if is_over or time.monotonic() - began > last:
                break
            self._take_changes()
        self._follow()
        is_saved = self._save_all()
        books, missing = self._audit_books()
        return books, missing if is_saved else None

    def _take_changes(self) -> None:
        for change in self._fleet.changes(_POLL):
            self._handle_change(*change)
        self._end_hanging()
        self._follow()

    def _save_all(self) -> bool:
        """Write a last checkpoint, and the model; whether no server went meanwhile."""
        if self._saving is not None:
            self._take_saved(SAVE_SECONDS)
        self._begin_saving()
        has_begun = self._saving is not None
        is_written = self._take_saved(SAVE_SECONDS)
        is_slow = self._saving is not None
        if not (has_begun and (is_written or is_slow)):
            return False
        model = self._orders.model
        return model is None or self._fleet.save_model(self._servers, Path(model))

    def _audit_books(self) -> tuple[dict[str, Any], int | None]:
        """The books, held against what the servers themselves say that they applied."""
        books: dict[str, Any] = self._fleet.ask("books").model_dump()
        return books, self._reconcile()

    def _await_successors(self) -> bool:
        """Wait until the loss of a server is known and all are there again, with workers for what they lack.

        Whether they are.
        """
        before = tuple(self._servers) if self._has_servers() else None
        until = time.monotonic() + _END_SECONDS
        while not self._has_servers() or tuple(self._servers) == before:
            if time.monotonic() > until:
                return False
            self._take_changes()
        if self._fleet.ask("end", self._diverged is None):
            for place in self._orders.workers:
                if self._members[place.name].state == "gone":
                    self._start_worker(place)
        return True


_TRANSITIONS: Mapping[
    tuple[str, str],
    tuple[Literal["there", "gone"] | None, Callable[[TrainingHead, str, Any], None]],
] = {
    ("server", "arrived"): ("there", TrainingHead._server_came),
    ("server", "gone"): ("gone", TrainingHead._server_went),
    ("server", "left"): ("gone", TrainingHead._server_went),
    ("server", "vanish"): (None, TrainingHead._kill),
    ("worker", "arrived"): ("there", TrainingHead._worker_came),
    ("worker", "left"): ("gone", TrainingHead._worker_left),
    ("worker", "gone"): ("gone", TrainingHead._worker_went),
    ("worker", "notice"): (None, TrainingHead._worker_noticed),
    ("worker", "vanish"): (None, TrainingHead._kill),
}
"""By role and event: the state from then on, unless it stays, and what is done. Who is gone has no more events."""


def main(folder: Path) -> int:
    """Train as the folder's orders say; the exit status."""
    from stash.spot.train.actors import ActorFleet

    orders = read_orders(folder)
    fleet = held = None
    try:
        held = _lock_checkpoints(Path(orders.checkpoints))
        fleet = ActorFleet(orders)
        TrainingHead(orders, folder, fleet).run()
    except StashError as error:
        append_row(
            folder / EVENTS,
            at=None,
            what="failed",
            who="",
            why=str(error),
            exit_code=error.exit_code,
        )
        return error.exit_code
    except Exception as error:
        why = f"the head failed: {type(error).__name__}: {one_line(error)}"
        append_row(
            folder / EVENTS, at=None, what="failed", who="", why=why, exit_code=StashError.exit_code
        )
        raise
    finally:
        if fleet is not None:
            fleet.close()
        if held is not None:
            os.close(held)
    return 0


def _lock_checkpoints(checkpoints: Path) -> int:
    """Be the only head that saves there; the lock's descriptor. Raises UserError where another one is."""
    checkpoints.mkdir(parents=True, exist_ok=True)
    held = os.open(checkpoints / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if lock_file(held) is False:
        os.close(held)
        raise UserError(
            f"another run saves in {checkpoints}; wait for it, end it, or name another --checkpoint-dir"
        )
    return held


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
