"""One command of Stash at a time in a folder, and for an output file; the second names the first."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stash.core.errors import UserError
from stash.measure.launcher.folder_lock import FolderLock, output_lock

HOLDS_FOLDER = """
import sys, time
from pathlib import Path
from stash.measure.launcher.folder_lock import FolderLock
with FolderLock(Path.cwd(), is_shared="shared" in sys.argv):
    print("locked", flush=True)
    time.sleep(600)
"""
HOLDS_OUTPUT = """
import sys, time
from pathlib import Path
from stash.measure.launcher.folder_lock import output_lock
with output_lock(Path("x.stash.json")):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def begin(tmp_path):
    """``begin(program, *words)``: another process that has a lock by the time that this returns."""
    started = list[subprocess.Popen[str]]()

    def start(program, *words):
        command = (sys.executable, "-c", program, *words)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True)
        started.append(process)
        assert process.stdout.readline() == "locked\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def locked(folder, **how):
    return FolderLock(folder, patience_seconds=0.0, **how)


def test_a_second_command_is_refused_and_names_the_first_which_may_be_killed(begin, tmp_path):
    # GIVEN a command that works in a folder
    before = time.time()
    first = begin(HOLDS_FOLDER, "--api-key", "hunter2")
    # WHEN another one comes THEN it names the command, without its secrets, its number and its start
    with pytest.raises(UserError) as refusal, locked(tmp_path):
        pass
    sentence = str(refusal.value)
    assert f"(process {first.pid}, since " in sentence
    assert f"is running in {tmp_path}, and two at once" in sentence
    assert "hunter2" not in sentence
    since = re.search(r"since (\d\d):(\d\d):(\d\d)\)", sentence)
    clock_time = ":".join(since.groups())
    possible = range(int(before) - 1, int(time.time()) + 1)
    assert clock_time in {time.strftime("%H:%M:%S", time.localtime(second)) for second in possible}
    # AND once the first is killed, the folder is free, with nothing left in it
    first.kill()
    first.wait()
    with locked(tmp_path) as lock:
        assert lock.descriptor is not None
    assert list(tmp_path.iterdir()) == []


def test_a_second_command_waits_for_one_that_ends_soon_and_says_so(
    begin,
    tmp_path,
    capsys,
    monkeypatch,
):
    first = begin(HOLDS_FOLDER)
    monkeypatch.setattr(time, "sleep", lambda seconds: (first.kill(), first.wait()))
    with FolderLock(tmp_path) as lock:
        assert lock.descriptor is not None
    printed = capsys.readouterr().err
    assert printed.startswith("stash: waiting up to 5 s, since `")
    assert printed.count("\n") == 1


def test_a_lock_may_be_entered_again_and_ends_with_its_last_exit(tmp_path):
    lock = locked(tmp_path)
    with lock:
        with lock:
            pass
        assert lock.descriptor is not None
        check = (
            "from pathlib import Path; from stash.measure.protocol.folder import lock; import os; "
        )
        check += "print(lock(os.open('.', os.O_RDONLY)))"
        words = (sys.executable, "-c", check)
        assert (
            subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
            == "False\n"
        )
    assert lock.descriptor is None


def test_nodes_of_one_job_share_a_folder_with_each_other_only(begin, tmp_path):
    node = begin(HOLDS_FOLDER, "shared")
    with locked(tmp_path, is_shared=True) as lock:
        assert lock.descriptor is not None
    with pytest.raises(UserError), locked(tmp_path):
        pass
    strangers = FolderLock(
        tmp_path, is_shared=True, patience_seconds=0.0, find_strangers=lambda: [node.pid]
    )
    with pytest.raises(UserError, match=f"process {node.pid}"), strangers:
        pass


def test_what_a_command_started_works_under_its_lock(tmp_path):
    program = (
        "from pathlib import Path; from stash.measure.launcher.folder_lock import FolderLock\n"
    )
    program += "with FolderLock(Path.cwd(), patience_seconds=0.0) as lock: print(lock.descriptor)"
    with locked(tmp_path, is_shared=True):  # as `stash watch stash profile train.py` does
        words = (sys.executable, "-c", program)
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"


def test_a_folder_that_cannot_be_locked_is_worked_in_and_said_so_once(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("stash.measure.launcher.folder_lock.lock", lambda descriptor, shared: None)
    lock = FolderLock(tmp_path)
    with lock, lock:
        assert lock.descriptor is None
    assert capsys.readouterr().err == (
        f"stash: {tmp_path} cannot be locked: start no second command of Stash there meanwhile\n"
    )


def test_an_output_file_is_written_by_one_command_from_whatever_folder(
    begin, tmp_path, monkeypatch
):
    first = begin(HOLDS_OUTPUT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    target = Path("..", "x.stash.json")
    named = rf"process {first.pid}, since .* is going to write "
    with pytest.raises(UserError, match=named) as refusal, output_lock(target):
        pass
    assert str(target) in str(refusal.value)
    with output_lock(Path("..", "y.stash.json")):
        pass
    first.kill()
    first.wait()
    with output_lock(target):
        pass
    assert os.listdir(elsewhere) == []
