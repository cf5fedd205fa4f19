"""A node of a gang and its guard, real processes and all: notices, reports to the head, and what the head orders."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stash.core.errors import StashError, UserError
from stash.measure.host.notices import Notice, NoticeWatch
from stash.spot.emulate.hosts import leftovers
from stash.spot.rented.node_agent import RentedNode
from stash.spot.rented.notice_guard import NodeGuard
from stash.spot.sync import checkpoint_request
from stash.spot.sync.checkpoint_request import asked, listen
from stash.spot.sync.group_monitor import GangOrders

SCRIPT = """
import os, pathlib, sys, time
from stash.spot.sync.checkpoint_request import SavedNote, asked, saved
folder = pathlib.Path(os.environ["STASH_SPOT_CHECKPOINTS"])
(folder / "up").touch()
while True:
    if asked(folder) and sys.argv[1] == "saves":
        saved(folder, SavedNote(asked(folder), 0.0))
        (folder / "kept").touch()
    if sys.argv[1].isdigit():
        sys.exit(int(sys.argv[1]))
    time.sleep(0.02)
"""


def _guarded(folder: Path, way: str, *notices: Notice, grace: float = 30.0) -> tuple[int, list[str]]:
    """Its exit status and what was said; notices come once the command is up."""
    printed: list[str] = []
    watch = NoticeWatch([])

    def listen() -> None:
        while not (folder / "up").exists():
            time.sleep(0.01)
        for notice in notices:
            watch.receive(notice)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    code = NodeGuard((sys.executable, "-c", SCRIPT, way), folder, grace, printed.append).run(watch)
    return code, printed


def _revoked(seconds: float | None) -> Notice:
    return Notice("revoked", time.time(), None if seconds is None else time.time() + seconds, "aws")


def test_a_command_without_notice_ends_by_itself(tmp_path: Path) -> None:
    assert _guarded(tmp_path, "3") == (3, [])


def test_a_notice_is_a_checkpoint_and_then_the_end(tmp_path: Path) -> None:
    listen(tmp_path)
    code, printed = _guarded(tmp_path, "saves", _revoked(60))
    assert code == 128 + signal.SIGTERM
    assert (tmp_path / "kept").exists()
    assert printed[0].startswith("aws: this machine will be gone in")
    assert printed[1].startswith("a checkpoint is whole after")


def test_who_does_not_save_in_time_ends_all_the_same(tmp_path: Path) -> None:
    listen(tmp_path)
    code, printed = _guarded(tmp_path, "deaf", _revoked(None), grace=2.3)
    assert code == 128 + signal.SIGTERM
    assert printed[1] == "no checkpoint: none was whole within 0.3 s; ending the command"


def test_a_machine_at_risk_trains_on_and_a_withdrawn_notice_is_forgotten(tmp_path: Path) -> None:
    listen(tmp_path)
    off = Notice("withdrawn", 0.0, None, "aws")
    risk = Notice("at risk", 0.0, None, "aws rebalance")
    code, printed = _guarded(tmp_path, "deaf", risk, _revoked(60), off, _revoked(0))
    assert code == 128 + signal.SIGTERM
    assert printed[0] == "aws rebalance: this machine may be taken away; it trains on"
    assert printed[2] == "aws: the notice is withdrawn"
    assert printed[-1] == "no checkpoint: the notice leaves no time for one; ending the command"


def test_sigterm_is_a_notice(tmp_path: Path) -> None:
    listen(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def send() -> None:
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    code, printed = _guarded(tmp_path, "saves")
    assert code == 128 + signal.SIGTERM
    assert printed[0] == "SIGTERM: this machine will be gone in 30 s; asking for a checkpoint"
    assert printed[1].startswith("a checkpoint is whole")
    assert signal.getsignal(signal.SIGTERM) == before
    assert asked(tmp_path) is not None


def test_a_command_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-such-program cannot be started: No such file"):
        NodeGuard(("no-such-program",), tmp_path, 30.0, print).run(NoticeWatch([]))


AGENT = """
import os, subprocess, sys
script = {**os.environ, "GROUP_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": os.environ["PET_RDZV_ID"], "MASTER_PORT": "7"}
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[1]], env=script).returncode)
"""
WAITS = "import time; time.sleep(600)"
SAVES = """
import time
from pathlib import Path
from stash.spot.sync import checkpoint_request as wanted
notes = wanted.notes(Path("none"))
wanted.listen(notes)
while True:
    if wanted.asked(notes) and wanted.last_saved(notes) is None:
        wanted.saved(notes, wanted.SavedNote(wanted.asked(notes), 0.5))
    time.sleep(0.02)
"""
FAILS = """
import sys
sys.exit(print("ValueError: no data\\ntorch.distributed.elastic.errors.ChildFailedError: ", file=sys.stderr) or 3)
"""


class _Head:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.beats, self.gone, self._orders = 0, False, GangOrders()

    def post(self, what: str, who: str, **facts: Any) -> None:
        self.events.append({"what": what, **facts})

    def beat(self, who: str) -> None:
        self.beats += 1

    def orders(self) -> GangOrders:
        if self.gone:
            raise RuntimeError("connection reset")
        return self._orders

    def order(self, **changes: Any) -> None:
        self._orders = replace(self._orders, **changes)

    def wait_for(self, what: str, count: int = 1) -> dict[str, Any]:
        patience = time.monotonic() + 60
        while time.monotonic() < patience:
            found = [each for each in list(self.events) if each["what"] == what]
            if len(found) >= count:
                return found[count - 1]
            time.sleep(0.02)
        raise AssertionError(f"{what} was not reported: {self.events}")


@contextmanager
def _node(folder: Path, script: str, do: Callable[[_Head, NoticeWatch], None]) -> Iterator[tuple[_Head, list[Any]]]:
    """One that lives while ``do`` has its way; its exit code, or what it raised."""
    head, watch, ends = _Head(), NoticeWatch([]), list[Any]()
    notes = folder / "notes"
    notes.mkdir()
    thread = threading.Thread(target=do, args=(head, watch), daemon=True)
    thread.start()
    command = (sys.executable, "-c", AGENT, script)
    node = RentedNode(command, "worker1", folder, notes, 30.0, "token", lambda text: None)
    try:
        ends.append(node.run(watch, lambda: head))
    except StashError as error:
        ends.append(error)
    yield head, ends
    thread.join(5)
    assert leftovers(notes) == []


def test_it_tells_that_it_is_there_and_in_which_group_and_ends_when_all_is_over(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.wait_for("started")
        head.order(over=True)

    with _node(tmp_path, WAITS, do) as (head, ends):
        assert ends == [0]
        assert head.events == [{"what": "up"}, {"what": "started", "round": 1, "meeting": "7", "size": 2}]
        assert head.beats > 0


@pytest.mark.slow
def test_another_round_is_another_start(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.wait_for("started")
        head.order(round=2)
        head.wait_for("started", 2)
        head.order(over=True)

    with _node(tmp_path, WAITS, do) as (head, ends):
        assert ends == [0]
        assert [each["round"] for each in head.events if each["what"] == "started"] == [1, 2]


def test_a_script_that_fails_is_told_with_its_error_and_waits_for_the_verdict(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.wait_for("ended")
        head.order(round=2)
        head.wait_for("ended", 2)
        head.order(over=True)

    with _node(tmp_path, FAILS, do) as (head, ends):
        assert ends == [3]
        ended = [each for each in head.events if each["what"] == "ended"]
        first = {"what": "ended", "code": 3, "script": True, "why": "ValueError: no data"}
        assert ended == [{**first, "round": 1}, {**first, "round": 2}]


def test_a_notice_is_told_answered_by_another_node_and_then_it_leaves(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.order(listens=True)  # whoever saves is elsewhere
        head.wait_for("started")
        watch.receive(Notice("revoked", time.time(), time.time() + 60, "aws"))
        word = head.wait_for("notice")["word"]
        head.order(wanted=word, saved=(word, 1.5))

    with _node(tmp_path, WAITS, do) as (head, ends):
        assert ends == [0]
        assert head.events[-1] == {"what": "left"}
        assert 50 < head.wait_for("notice")["seconds"] <= 60


@pytest.mark.slow
def test_a_request_of_another_node_is_answered_by_the_script_here(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.wait_for("listens")
        head.order(listens=True, wanted="w1")
        head.wait_for("saved")
        head.order(over=True)

    with _node(tmp_path, SAVES, do) as (head, ends):
        assert ends == [0]
        assert head.wait_for("saved") == {"what": "saved", "word": "w1", "seconds": 0.5}


@pytest.mark.slow
def test_a_withdrawn_notice_is_told_and_it_stays(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.order(listens=True)
        head.wait_for("started")
        watch.receive(Notice("revoked", time.time(), time.time() + 60, "azure"))
        head.wait_for("notice")
        watch.receive(Notice("withdrawn", time.time(), None, "azure"))
        head.wait_for("withdrawn")
        head.order(over=True)

    with _node(tmp_path, WAITS, do) as (head, ends):
        assert ends == [0]
        assert all(each["what"] != "left" for each in head.events)


def test_without_its_head_it_ends(tmp_path: Path) -> None:
    def do(head: _Head, watch: NoticeWatch) -> None:
        head.wait_for("started")
        head.gone = True

    with _node(tmp_path, WAITS, do) as (_, ends):
        assert "the head is gone: connection reset" in str(ends[0])


def test_notes_lie_where_the_variable_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert checkpoint_request.notes(tmp_path) == tmp_path
    monkeypatch.setenv(checkpoint_request.NOTES, "/elsewhere")
    assert checkpoint_request.notes(tmp_path) == Path("/elsewhere")
    assert os.environ[checkpoint_request.NOTES]
