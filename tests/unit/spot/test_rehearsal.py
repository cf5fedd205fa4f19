"""What a rehearsal does with what the head says, on a ground that is only a list of what was asked of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stash.core.errors import JobError, UserError
from stash.lab.testbed.revoke import Revocation, moments
from stash.spot.emulate import run_rehearsal as module
from stash.spot.emulate.run_rehearsal import Rehearsal
from stash.spot.records.runs import SpotEvent
from stash.spot.train.run_orders import EVENTS, UPDATES, WISHES, EventLog, TrainingOrders, WorkerPlace

ORDERS = TrainingOrders(
    "job.py:job", "nowhere", ("server1",), (WorkerPlace("worker1", "a", 8), WorkerPlace("worker2", "b", 8))
)
BOOKS = {"issued": 16, "done": 16, "out": 0, "waiting": 0, "reissued": 1, "repeated": 0, "wrong": None}


class _Ground:
    """Runs as long as there are steps left; each says something on the tape."""

    def __init__(self, folder: Path, steps: list[Callable[[EventLog], None]]) -> None:
        self.events, self.steps, self.asked = EventLog(folder / EVENTS), steps, list[tuple[str, str]]()
        self.killed_by: int | None = 1

    def start(self) -> None: ...

    def launch(self, name: str) -> None:
        self.asked.append(("launch", name))

    def vanish(self, name: str) -> None:
        self.asked.append(("vanish", name))

    def running(self) -> bool:
        if not self.steps:
            return False
        self.steps.pop(0)(self.events)
        return True

    def printed(self) -> str:
        return "Traceback\nValueError: what it died of"

    def status(self) -> int | None:
        return self.killed_by

    def close(self) -> None:
        self.asked.append(("close", ""))


def _says(what: str, who: str = "", **facts: object) -> Callable[[EventLog], None]:
    return lambda tape: tape.append(at=1.0, what=what, who=who, **facts)


ENDED = _says("ended", reason="time is up", updates=1, loss=0.5, books=BOOKS)
JOINED = [_says("joined", "worker1", type="a"), _says("joined", "worker2", type="b"), _says("began")]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL", 0.0)


def _run(folder: Path, steps: list[Callable[[EventLog], None]], *taken: Revocation) -> tuple[Rehearsal, _Ground]:
    ground = _Ground(folder, steps)
    played = Rehearsal(ORDERS, ground, folder, moments(taken), lambda event: None)
    played.run()
    return played, ground


def test_who_is_wanted_is_launched_and_who_is_revoked_vanishes(tmp_path: Path) -> None:
    wanted = _says("wanted", "worker3", type="a", instead_of="worker1")
    EventLog(tmp_path / UPDATES).append(seconds=1.0, worker="worker1", samples=8, staleness=0, loss=float("nan"))
    played, ground = _run(tmp_path, [*JOINED, wanted, ENDED], Revocation("worker1", 0.0))
    assert sorted(ground.asked[:2]) == [("launch", "worker3"), ("vanish", "worker1")]
    assert ground.asked[-1] == ("close", "")
    assert played.types == {"worker1": "a", "worker2": "b", "worker3": "a"}
    assert played.account.reason == "time is up"
    assert played.account.error is None
    assert played.account.updates.loss == (None,)


def test_those_that_were_told_are_those_that_vanish_not_their_successors(tmp_path: Path) -> None:
    joins = _says("joined", "worker3", type="b")
    told = Revocation("b", 0.0, 0.0)
    _, ground = _run(tmp_path, [*JOINED, joins, ENDED], told)
    assert ("vanish", "worker2") in ground.asked
    assert ("vanish", "worker3") not in ground.asked
    assert [wish["who"] for wish in EventLog(tmp_path / WISHES).news()] == ["worker2"]


def test_a_head_that_dies_leaves_its_last_words_as_the_reason(tmp_path: Path) -> None:
    played, _ = _run(tmp_path, [*JOINED])
    assert played.account.reason.endswith("ValueError: what it died of")
    assert isinstance(played.account.error, JobError)
    assert played.account.died


def test_a_head_that_was_killed_is_said_to_be(tmp_path: Path) -> None:
    ground = _Ground(tmp_path, [*JOINED])
    ground.killed_by = -9
    account = Rehearsal(ORDERS, ground, tmp_path, [], lambda event: None).run()
    assert (account.reason, account.died) == ("the head was killed by SIGKILL", True)


def test_a_saved_model_with_another_loss_than_was_reported_is_an_error(tmp_path: Path) -> None:
    saved = {"loss": 0.79, "reported": 2e-4, "updates": 50, "samples": 400, "said": "x", "wrong": "it gives 0.79"}
    ended = _says("ended", reason="time is up", updates=1, loss=0.5, books=BOOKS, saved=saved)
    played, _ = _run(tmp_path, [*JOINED, ended])
    assert played.account.saved is not None
    assert isinstance(played.account.error, JobError)
    assert str(played.account.error) == "it gives 0.79"
    assert played.account.books is not None


@pytest.mark.parametrize(("before", "said"), [([], "nothing was trained"), (JOINED, "went on 0.2 s past its time")])
def test_a_head_that_hangs_is_given_up_and_everything_closed(
    tmp_path: Path, before: list[Callable[[EventLog], None]], said: str
) -> None:
    hangs = [lambda tape: time.sleep(0.1)] * 9
    ground = _Ground(tmp_path, [*before, *hangs])
    played = Rehearsal(replace(ORDERS, seconds=0.0), ground, tmp_path, [], lambda event: None, overdue=0.2)
    with pytest.raises(JobError, match=said):
        played.run()
    assert ground.asked[-1] == ("close", "")
    assert ground.steps  # it was still running


def test_a_users_mistake_stays_one(tmp_path: Path) -> None:
    played, _ = _run(tmp_path, [_says("failed", why="the checkpoint x is of another job", exit_code=2)])
    assert isinstance(played.account.error, UserError)


def test_an_interrupted_run_lets_the_head_save_and_keeps_the_account(tmp_path: Path) -> None:
    def interrupt(tape: EventLog) -> None:
        raise KeyboardInterrupt

    ground = _Ground(tmp_path, [*JOINED, interrupt, ENDED])
    heard: list[SpotEvent] = []
    played = Rehearsal(ORDERS, ground, tmp_path, [], heard.append)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert EventLog(tmp_path / WISHES).news() == [{"do": "stop"}]
    assert played.account.books is not None
    assert ground.asked[-1] == ("close", "")
    assert [event.what for event in heard] == ["joined", "joined", "began", "ended"]
