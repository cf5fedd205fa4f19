"""However a launcher dies, the user's files are as they were seconds later; and nothing of Stash is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from stash.measure.launcher.guarded import GuardedFiles, report_sentences
from stash.measure.protocol import put_back
from stash.measure.protocol.file_backup import FileBackup
from stash.measure.protocol.folder import KEPT, RunFolder
from stash.measure.protocol.put_back import RestoreReport

LAUNCHER = """
import subprocess, sys, time
from pathlib import Path
from stash.measure.launcher.guarded import GuardedFiles
from stash.measure.launcher.process import Process
from stash.measure.launcher.process import Request
from stash.measure.protocol.folder import RunFolder
run = Path(sys.argv[1])
run.mkdir()
with GuardedFiles(run):
    launch = run / "launch-0-0"
    launch.mkdir()
    orders = {"STASH_ORDERS": str(launch / "orders.json")}
    job = (sys.executable, "-c", sys.argv[2], str(launch), sys.argv[3])
    process = Process(Request(job, orders), RunFolder(launch))
    time.sleep(600)
"""
JOB = """
import sys, time
from pathlib import Path
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.file_backup import FileBackup as Keeper
keeper, path = Keeper(RunFolder(Path(sys.argv[1])), time.time() - 60), Path(sys.argv[2])
while True:
    keeper.before_writing(str(path), truncates=True)
    path.write_text("of the job")
    time.sleep(0.05)
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "last.pt"
    path.write_text("the user's")
    os.utime(path, (1, 1))
    return path


def below(process):
    """Its child processes."""
    return [
        int(word)
        for task in Path("/proc", str(process), "task").iterdir()
        for word in (task / "children").read_text().split()
    ]


def the_launcher(pid):
    os.kill(pid, signal.SIGKILL)


def its_group(pid):
    os.killpg(pid, signal.SIGKILL)


def its_supervisor_too(pid):
    for child in below(pid):
        if b"supervisor.py" in Path("/proc", str(child), "cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def its_session(pid):
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(process.name)) == pid:
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.parametrize(
    "kill",
    [
        the_launcher,
        its_supervisor_too,
        pytest.param(its_group, marks=pytest.mark.slow),
        pytest.param(its_session, marks=pytest.mark.slow),
    ],
)
def test_a_file_is_as_it_was_seconds_after_the_launcher_was_killed(file, tmp_path, kill):
    run, before, log = tmp_path / "stash-run", file.stat(), tmp_path / "log"
    with log.open("w") as errors:
        words = (sys.executable, "-c", LAUNCHER, str(run), JOB, str(file))
        launcher = subprocess.Popen(words, start_new_session=True, stderr=errors, cwd=tmp_path)
    until(lambda: file.exists() and file.read_text() == "of the job")
    kill(launcher.pid)
    launcher.wait()
    until(lambda: not run.exists())
    after = file.stat()
    assert file.read_text() == "the user's"
    assert (after.st_ino, after.st_mtime) == (before.st_ino, before.st_mtime)
    until(lambda: log.read_text().endswith("\n"))
    assert log.read_text() == (
        f"stash: the profile (process {launcher.pid}) was killed; put back as before, since the job wrote to or "
        "removed 1 file: last.pt\n"
    )
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("state", "log")] == [
        "last.pt"
    ]
    assert list((tmp_path / "state/stash/kept").iterdir()) == []


def test_a_run_that_ends_by_itself_leaves_no_guardian_and_no_folder(file, tmp_path):
    run = tmp_path / "stash-run"
    (run / "launch-0-0").mkdir(parents=True)
    with GuardedFiles(run) as guarded:
        guardian = guarded._guardian
        assert guardian.poll() is None
        FileBackup(RunFolder(run / "launch-0-0"), time.time() - 60).before_removing(str(file))
        file.unlink()
        assert put_back.find_abandoned() == []  # it is owned
    assert guardian.returncode == -signal.SIGKILL
    assert file.read_text() == "the user's"
    assert list((tmp_path / "state/stash/kept").iterdir()) == []
    assert not (run / KEPT).is_symlink()


def test_a_run_without_any_place_that_lasts_keeps_in_its_own_folder(file, tmp_path, monkeypatch):
    monkeypatch.setattr("stash.measure.launcher.guarded.claim_for_run", lambda run: None)
    run = tmp_path / "stash-run"
    (run / "launch-0-0").mkdir(parents=True)
    with GuardedFiles(run):
        FileBackup(RunFolder(run / "launch-0-0"), time.time() - 60).before_writing(
            str(file), truncates=True
        )
        assert (run / KEPT / "launch-0-0.jsonl").exists()
    assert file.read_text() == "the user's"
    assert not (run / KEPT).exists()


def test_files_are_counted_and_the_first_few_are_named_as_seen_from_here():
    here = Path.cwd()
    paths = tuple(str(here / name) for name in ("a.pt", "b.pt", "c.pt", "d.pt", "e.pt"))
    put_back, look, new = report_sentences(
        RestoreReport(paths, ("/elsewhere/big (too large to keep)",), paths[:1])
    )
    assert put_back.endswith("the job wrote to or removed 5 files: a.pt, b.pt, c.pt and 2 more")
    assert look.endswith("/elsewhere/big (too large to keep)")
    assert ": 1 file; remove" in new


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_two_jobs_that_write_one_file_do_not_take_each_others_for_the_users(
    file, tmp_path, first_ends_first
):
    runs = [tmp_path / "stash-first", tmp_path / "stash-second"]
    guarded = []
    for number, run in enumerate(runs):
        # GIVEN a job that writes where the user's file is, where another run's job has written before
        (run / "launch-0-0").mkdir(parents=True)
        guarded.append(GuardedFiles(run))
        guarded[-1].__enter__()
        FileBackup(RunFolder(run / "launch-0-0"), time.time() + 1.5).before_writing(
            str(file), truncates=True
        )
        file.write_text(f"job {number}")
    # WHEN both end, in either order
    for each in guarded if first_ends_first else reversed(guarded):
        each.__exit__(None, None, None)
    # THEN the user's file is there
    assert file.read_text() == "the user's"
