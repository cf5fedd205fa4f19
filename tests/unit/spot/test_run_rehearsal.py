"""A rehearsal: how slow it is played, what it does with what the head writes, and the log that is kept."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from fleet_pools import dated_plan as plan

from stash.core.errors import JobError, UserError
from stash.core.jsonl import Tail, append_row
from stash.spot.emulate import run_rehearsal as module
from stash.spot.emulate.build_rehearsal import (
    EmulatedFleet,
    RehearsedFleet,
    emulate_fleet,
    least_slower,
)
from stash.spot.emulate.revocations import Revocation, moments
from stash.spot.emulate.run_rehearsal import Account, Rehearsal, spot_log
from stash.spot.fleet_records import FleetPool
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
        self.events, self.steps, self.asked = folder / EVENTS, steps, list[tuple[str, str]]()
        self.killed_by: int | None = 1

    def start(self): ...

    def launch(self, name):
        self.asked.append(("launch", name))

    def vanish(self, name):
        self.asked.append(("vanish", name))

    def running(self):
        if not self.steps:
            return False
        self.steps.pop(0)(self.events)
        return True

    def head_output(self):
        return "Traceback\nValueError: what it died of"

    def status(self):
        return self.killed_by

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
    played = Rehearsal(ORDERS, ground, folder, moments(taken), lambda event: None)
    played.run()
    return played, ground


def test_who_is_wanted_is_launched_and_who_is_revoked_vanishes(tmp_path):
    wanted = _says("wanted", "worker3", type="a", instead_of="worker1")
    append_row(
        tmp_path / UPDATES, seconds=1.0, worker="worker1", samples=8, staleness=0, loss=float("nan")
    )
    played, ground = _run(tmp_path, [*JOINED, wanted, ENDED], Revocation("worker1", 0.0))
    assert sorted(ground.asked[:2]) == [("launch", "worker3"), ("vanish", "worker1")]
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


def _log(of, slower, loss):
    fleet = None if slower is None else EmulatedFleet(slower, 1e6, 1e6, 0.0, {})
    chosen = RehearsedFleet(servers=("server1",), workers=(), emulated=fleet, at_once=1)
    orders = TrainingOrders(
        job="job.py:job", checkpoints="kept", servers=("server1",), workers=(), loss=loss
    )
    rehearsal = SimpleNamespace(account=Account(loss=float("nan")), types={})
    on = "local" if slower is None else "testbed"
    return spot_log(rehearsal, (Path("job.plan.json"), "job.py:job", on), of, chosen, orders)


def test_the_goal_is_the_loss_that_was_asked_for_else_the_plans():
    assert _log(plan(), 5.0, None).goal_loss == plan().loss
    assert _log(plan(), 5.0, 0.123).goal_loss == 0.123


POOL = FleetPool.model_validate(
    {
        "as_of": "2026-11-22",
        "source": "a test",
        "exchange_bytes": 10e6,
        "worker_bytes_per_second": 100e6,
        "pcie_bytes_per_second": 1e10,
        "server": {
            "count": 2,
            "bytes_per_second": 400e6,
            "dollars_per_hour": 0.1,
            "apply_seconds": 0.08,
            "cores": 4,
        },
        "loss": {"gamma1": 1, "gamma2": 0, "gamma3": 1, "gamma5": 0},
        "types": [
            {"name": "a", "batch": 32, "samples_per_second": 64, "quota": 4, "dollars_per_hour": 1}
        ],
    }
)


def test_everything_takes_as_many_times_longer_as_is_asked():
    plain, slow = emulate_fleet(POOL, 10e6, 1), emulate_fleet(POOL, 10e6, 4)
    # 0.5 s for an iteration, of which 2 × 0.1 s on the worker's own link and 0.01 s of each server's work
    assert plain.pace == {"a": pytest.approx(0.29)}
    assert plain.apply_seconds == pytest.approx(0.01)
    assert (plain.worker_rate, plain.server_rate) == (100e6, 400e6)
    assert slow.pace == {"a": pytest.approx(4 * 0.29)}
    assert slow.apply_seconds == pytest.approx(0.04)
    assert (slow.worker_rate, slow.server_rate) == (25e6, 100e6)


def test_a_smaller_job_gets_slower_links_so_that_its_exchange_takes_as_long():
    found = emulate_fleet(POOL, 1e6, 1)
    assert 1e6 / found.worker_rate == pytest.approx(0.1)


def test_a_pool_that_contradicts_itself_is_told():
    wrong = POOL.model_copy(update={"worker_bytes_per_second": 10e6})
    with pytest.raises(UserError, match="less time for an iteration than for its exchange alone"):
        emulate_fleet(wrong, 10e6, 1)


def test_it_is_played_no_slower_than_this_machine_needs():
    assert least_slower(POOL, {"a": 1}, 2.0, 10e6, 1e-4, 2) == 1
    assert least_slower(POOL, {"a": 4}, 8.0, 10e6, 1e-4, 2) == 2  # 160 MB/s are too much to move
    # 0.64 s of computing have to fit twice
    assert least_slower(POOL, {"a": 1}, 2.0, 10e6, 0.02, 2) == 5
    with pytest.raises(UserError, match="smaller model or batch"):
        least_slower(POOL, {"a": 1}, 2.0, 10e6, 100.0, 2)
