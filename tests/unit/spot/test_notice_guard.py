"""A node of a gang and its guard, real processes and all: notices, reports to the head, and what the head orders."""

import os
import signal
import sys
import threading
import time

import pytest

from stash.core.errors import UserError
from stash.measure.host.notices import Notice, NoticeWatch
from stash.measure.linux.processes import status_of
from stash.spot.sync import notice_guard
from stash.spot.sync.checkpoint_request import latest_request, start_listening
from stash.spot.sync.notice_guard import NodeGuard

SCRIPT = """
import os, pathlib, sys, time
from stash.spot.sync.checkpoint_request import latest_request, record_answer
folder = pathlib.Path(os.environ["STASH_SPOT_CHECKPOINTS"])
(folder / "up").touch()
while True:
    if latest_request(folder) and sys.argv[1] == "saves":
        record_answer(folder, latest_request(folder))
        (folder / "kept").touch()
    if sys.argv[1].isdigit():
        sys.exit(int(sys.argv[1]))
    time.sleep(0.02)
"""


def _guarded(folder, way, *notices):
    """Its exit status and what was said; notices come once the command is up."""
    printed = []
    watch = NoticeWatch([])

    def listen():
        while not (folder / "up").exists():
            time.sleep(0.01)
        for notice in notices:
            watch.receive(notice)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    code = NodeGuard((sys.executable, "-c", SCRIPT, way), folder, printed.append).run(watch)
    return code, printed


def _revoked(seconds):
    return Notice("revoked", time.time(), time.time() + seconds, "aws")


def test_a_command_without_notice_ends_by_itself(tmp_path):
    assert _guarded(tmp_path, "3") == (3, [])


def test_a_notice_is_a_checkpoint_and_then_the_end(tmp_path):
    start_listening(tmp_path)
    code, printed = _guarded(tmp_path, "saves", _revoked(60))
    assert code == 128 + signal.SIGTERM
    assert (tmp_path / "kept").exists()
    assert printed[0].startswith("aws: this machine will be gone in")
    assert printed[1].startswith("a checkpoint is whole after")


def test_who_does_not_save_in_time_ends_all_the_same(tmp_path):
    start_listening(tmp_path)
    code, printed = _guarded(tmp_path, "deaf", _revoked(2.5))
    assert code == 128 + signal.SIGTERM
    assert printed[1].startswith("no checkpoint: none was whole within ")


def test_a_machine_at_risk_trains_on_and_a_withdrawn_notice_is_forgotten(tmp_path):
    start_listening(tmp_path)
    off = Notice("withdrawn", 0.0, None, "aws")
    risk = Notice("at risk", 0.0, None, "aws rebalance")
    code, printed = _guarded(tmp_path, "deaf", risk, _revoked(60), off, _revoked(0))
    assert code == 128 + signal.SIGTERM
    assert printed[0] == "aws rebalance: this machine may be taken away; it trains on"
    assert printed[2] == "aws: the notice is withdrawn"
    assert printed[-1] == "no checkpoint: none was whole within 0 s; ending the command"


def test_sigterm_is_a_notice(tmp_path):
    start_listening(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def send():
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=send, daemon=True).start()
    code, printed = _guarded(tmp_path, "saves")
    assert code == 128 + signal.SIGTERM
    assert printed[0] == "SIGTERM: this machine will be gone in 30 s; asking for a checkpoint"
    assert printed[1].startswith("a checkpoint is whole")
    assert signal.getsignal(signal.SIGTERM) == before
    assert latest_request(tmp_path) is not None


def test_a_command_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(UserError, match="no-such-program cannot be started: No such file"):
        NodeGuard(("no-such-program",), tmp_path, print).run(NoticeWatch([]))


DEAF = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(child.pid))
__import__("os").rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""


def test_a_command_that_must_be_ended_by_force_leaves_nothing_that_it_started(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(notice_guard, "_GRACE_SECONDS", 0.2)
    number = tmp_path / "child"

    class Interrupted(NoticeWatch):
        def next_notice(self, seconds):
            if number.exists():
                raise KeyboardInterrupt
            return super().next_notice(seconds)

    with pytest.raises(KeyboardInterrupt):
        NodeGuard((sys.executable, "-c", DEAF, str(number)), tmp_path, print).run(Interrupted([]))
    status = status_of(int(number.read_text()))
    assert status is None or status.ended
