"""A started launch: its output, its signs of life, and that nothing of it is left."""

import signal
import socket
import subprocess
import sys

import psutil
import pytest
from waiting import until

from stash.core.interrupts import REQUESTS
from stash.measure.launcher.process import Process, Request
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Heart
from stash.measure.protocol.orders import VARIABLE

FOLLOWED = "import subprocess; subprocess.run(['sh', '-c', {shell!r}])"
EXITS = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(folder + "/pid.new", folder + "/pid")
while not os.path.exists(folder + "/released"):
    time.sleep(0.01)
sys.exit(3)
""".replace("'", '"')


SLOW_TO_START = """
import signal, subprocess, sys, time
from stash.core.interrupts import REQUESTS
from stash.measure.launcher import supervisor
for number in REQUESTS:
    signal.signal(number, signal.SIG_DFL)  # as in a terminal
start = subprocess.Popen
def slow(*words, **settings):
    first = start(*words, **settings)
    print(first.pid, flush=True)
    time.sleep(1)
    return first
subprocess.Popen = slow
sys.exit(supervisor.main(int(sys.argv[1]), "A=B", "sleep", "600"))
"""


def started(tmp_path, program):
    return Process(
        Request((sys.executable, "-c", program), {VARIABLE: str(tmp_path / "orders.json")}),
        RunFolder(tmp_path),
    )


def test_output_and_exit_status_are_kept(tmp_path):
    process = started(
        tmp_path, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    )
    until(lambda: process.poll() is not None)
    assert process.poll() == 3
    assert set(process.output().split()) == {"out", "err"}
    process.stop()


def test_what_cleaned_its_environment_and_left_its_session_is_ended_too(tmp_path):
    cleaned = "import subprocess; print(subprocess.Popen(['sleep', '600'], env={}, start_new_session=True).pid)"
    process = started(tmp_path, cleaned)
    until(lambda: process.poll() is not None)
    sleeper = psutil.Process(int(process.output()))
    process.stop()
    assert not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE


def test_what_comes_to_its_own_end_is_let_go_while_nothing_else_moves(tmp_path):
    # GIVEN a shell that goes on to its next line when its program has ended, with any exit code
    process = started(
        tmp_path,
        FOLLOWED.format(shell=f"{sys.executable} -c '{EXITS}' {tmp_path}; touch {tmp_path}/next"),
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    # WHEN the launch is finished, the program's own end included
    codes = process.finish([int((tmp_path / "pid").read_text())])
    # THEN its exit code is known, and the next line was never run
    assert list(codes.values()) == [3]
    process.stop()
    assert not (tmp_path / "next").exists()


def test_a_supervisor_that_is_killed_is_how_the_launch_ended(tmp_path):
    process = started(tmp_path, "import time; time.sleep(600)")
    process._supervisor.kill()
    until(lambda: process.poll() is not None)
    assert process.poll() == -9
    process.stop()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(each, marks=[] if each == signal.SIGTERM else [pytest.mark.slow])
        for each in REQUESTS
    ],
)
def test_a_supervisor_told_to_end_in_the_moment_it_starts_its_command_leaves_nothing(
    number,
):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = (sys.executable, "-c", SLOW_TO_START, str(theirs.fileno()))
        supervisor = subprocess.Popen(words, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE)
        with supervisor:
            first = psutil.Process(int(supervisor.stdout.readline()))
            supervisor.send_signal(number)
            code = supervisor.wait(60)
    left = first.is_running()
    if left:
        first.kill()
    assert (left, code) == (False, 128 + number)


def test_a_command_that_cannot_be_run_ends_as_in_a_shell(tmp_path):
    process = Process(
        Request(("no-such-program",), {VARIABLE: str(tmp_path / "orders.json")}),
        RunFolder(tmp_path),
    )
    until(lambda: process.poll() is not None)
    assert process.poll() == 127
    assert "no-such-program: No such file or directory" in process.output()
    process.stop()


def test_crashes_come_the_earliest_first_and_beats_by_rank(tmp_path):
    process = started(tmp_path, "pass")
    for rank, words in (("1", "first"), ("0", "second")):
        process.folder.crash(rank).write_text(words)
    Heart(process.folder).beat(2, 11)
    assert process.crashes() == ["first", "second"]
    assert process.beats()[2].steps == 11
    process.stop()
