"""A rehearsal: how slow it is played, what it does with what the head writes, and the log that is kept."""

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleet_pools import dated_plan as plan

from stash.core.errors import JobError, UserError
from stash.core.jsonl import Tail, append_row
from stash.spot.emulate import run_rehearsal as module
from stash.spot.emulate.build_rehearsal import Revocation, parse_revocation
from stash.spot.emulate.run_rehearsal import Account, Rehearsal, spot_log
from stash.spot.train.run_orders import EVENTS, UPDATES, WISHES, TrainingOrders, WorkerPlace

ORDERS = TrainingOrders(
    "job.py:job",
    "nowhere",
    ("server1",),
    (WorkerPlace("worker1", "a", 8), WorkerPlace("worker2", "b", 8)),
)
BOOKS = {
    "issued": 16,
    "done": 16,
    "out": 0,
    "waiting": 0,
    "reissued": 1,
    "repeated": 0,
    "wrong": None,
}


class _Ground:
    """Runs as long as there are steps left; each says something on the tape."""

    def __init__(self, folder, steps):
        self.events = folder / EVENTS
        self.steps = steps
        self.asked = []
        self.killed_by = 1

    def start(self): ...

    def vanish(self, name):
        self.asked.append(("vanish", name))

    def status(self):
        if not self.steps:
            return self.killed_by
        self.steps.pop(0)(self.events)
        return None

    def head_output(self):
        return "Traceback\nValueError: what it died of"

    def close(self):
        self.asked.append(("close", ""))


def _says(what, who="", **facts):
    return lambda tape: append_row(tape, at=1.0, what=what, who=who, **facts)


ENDED = _says("ended", reason="time is up", updates=1, loss=0.5, books=BOOKS)
JOINED = [
    _says("joined", "worker1", type="a"),
    _says("joined", "worker2", type="b"),
    _says("began"),
]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(module, "_POLL", 0.0)


def _run(folder, steps, *taken):
    ground = _Ground(folder, steps)
    played = Rehearsal(ORDERS, ground, folder, taken, lambda event: None)
    played.run()
    return played, ground


def test_who_is_wanted_is_known_by_type_and_who_is_revoked_vanishes(tmp_path):
    wanted = _says("wanted", "worker3", type="a", instead_of="worker1")
    append_row(
        tmp_path / UPDATES, seconds=1.0, worker="worker1", samples=8, staleness=0, loss=float("nan")
    )
    played, ground = _run(tmp_path, [*JOINED, wanted, ENDED], Revocation("worker1", 0.0))
    assert ground.asked[0] == ("vanish", "worker1")
    assert ground.asked[-1] == ("close", "")
    assert played.types == {"worker1": "a", "worker2": "b", "worker3": "a"}
    assert played.account.reason == "time is up"
    assert played.account.error is None
    assert played.account.updates.loss == (None,)


def test_those_that_were_told_are_those_that_vanish_not_their_successors(tmp_path):
    joins = _says("joined", "worker3", type="b")
    with_notice = Revocation("b", 0.0, 0.0)
    _, ground = _run(tmp_path, [*JOINED, joins, ENDED], with_notice)
    assert ("vanish", "worker2") in ground.asked
    assert ("vanish", "worker3") not in ground.asked
    assert [wish["who"] for wish in Tail(tmp_path / WISHES).read_new_rows()] == ["worker2"]


def test_a_head_that_dies_leaves_its_last_words_as_the_reason(tmp_path):
    played, _ = _run(tmp_path, [*JOINED])
    assert played.account.reason.endswith("ValueError: what it died of")
    assert isinstance(played.account.error, JobError)
    assert played.account.died


def test_a_head_that_was_killed_is_said_to_be(tmp_path):
    ground = _Ground(tmp_path, [*JOINED])
    ground.killed_by = -9
    account = Rehearsal(ORDERS, ground, tmp_path, [], lambda event: None).run()
    assert (account.reason, account.died) == ("the head was killed by SIGKILL", True)


def test_samples_that_are_not_in_the_model_are_an_error(tmp_path):
    books = {
        **BOOKS,
        "wrong": "8 samples that workers took are not in the model: none handed them in",
    }
    played, _ = _run(
        tmp_path, [*JOINED, _says("ended", reason="time is up", updates=1, loss=0.5, books=books)]
    )
    assert (str(played.account.error), played.account.error.exit_code) == (books["wrong"], 1)


@pytest.mark.parametrize(
    ("before", "sentence"), [([], "nothing was trained"), (JOINED, "went on 0.2 s past its time")]
)
def test_a_head_that_hangs_is_given_up_and_everything_closed(tmp_path, before, sentence):
    hangs = [lambda tape: time.sleep(0.1)] * 9
    ground = _Ground(tmp_path, [*before, *hangs])
    played = Rehearsal(
        replace(ORDERS, seconds=0.0), ground, tmp_path, [], lambda event: None, overdue=0.2
    )
    with pytest.raises(JobError, match=sentence):
        played.run()
    assert ground.asked[-1] == ("close", "")
    assert ground.steps  # it was still running


def test_a_users_mistake_stays_one(tmp_path):
    played, _ = _run(
        tmp_path, [_says("failed", why="the checkpoint x is of another job", exit_code=2)]
    )
    assert isinstance(played.account.error, UserError)


def test_an_interrupted_run_lets_the_head_save_and_keeps_the_account(tmp_path):
    def interrupt(tape):
        raise KeyboardInterrupt

    ground = _Ground(tmp_path, [*JOINED, interrupt, ENDED])
    events = []
    played = Rehearsal(ORDERS, ground, tmp_path, [], events.append)
    with pytest.raises(KeyboardInterrupt):
        played.run()
    assert Tail(tmp_path / WISHES).read_new_rows() == [{"do": "stop"}]
    assert played.account.books is not None
    assert ground.asked[-1] == ("close", "")
    assert [event.what for event in events] == ["joined", "joined", "began", "ended"]


def _log(of, loss):
    orders = TrainingOrders(
        job="job.py:job", checkpoints="kept", servers=("server1",), workers=(), loss=loss
    )
    rehearsal = SimpleNamespace(account=Account(loss=float("nan")), types={})
    return spot_log(rehearsal, (Path("job.plan.json"), "job.py:job", "local"), of, orders)


def test_the_goal_is_the_loss_that_was_asked_for_else_the_plans():
    assert _log(plan(), None).goal_loss == plan().loss
    assert _log(plan(), 0.123).goal_loss == 0.123


def test_a_revocation_is_read_with_and_without_notice():
    assert parse_revocation("worker2@40s,notice=20s") == Revocation("worker2", 40.0, 20.0)
    assert parse_revocation("worker2@40,notice=20") == Revocation("worker2", 40.0, 20.0)
    assert parse_revocation("v100@1m") == Revocation("v100", 60.0, None)


@pytest.mark.parametrize(
    "text", ["worker2", "@40s", "worker2@", "worker2@soon", "worker2@40s,", "a@1s,told=3s", "a@-1s"]
)
def test_a_revocation_that_cannot_be_read_is_shown_with_how_to_write_it(text):
    with pytest.raises(UserError, match="write it like worker2@40s,notice=20s"):
        parse_revocation(text)
