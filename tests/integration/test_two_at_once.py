"""Two commands of Stash at once in one folder, or for one output file: the second is refused, and no file is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

JOB = """
import os
import time
import torch

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(10**9):
    time.sleep(0.005)
    optimizer.zero_grad()
    model(torch.ones(8, 8)).mean().backward()
    optimizer.step()
    if step % 10 == 9:
        with open("ckpt.new", "w") as file:
            file.write("the job's")
        os.replace("ckpt.new", "ckpt.txt")
"""
Stash = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a script and the user's checkpoint."""
    (tmp_path / "job").mkdir()
    return made(tmp_path / "job")


def made(folder: Path) -> Path:
    (folder / "train.py").write_text(JOB)
    (folder / "ckpt.txt").write_text("the user's")
    os.utime(folder / "ckpt.txt", (1e9, 1e9))
    return folder


@pytest.fixture
def stash(tmp_path: Path) -> Iterator[Stash]:
    """``stash(folder, *words)`` begins a command there."""
    started = list[subprocess.Popen[str]]()

    def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            (sys.executable, "-m", "stash", *words, "train.py"),
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_until_at_work(folder: Path) -> None:
    deadline = time.monotonic() + 60
    while (folder / "ckpt.txt").read_text() != "the job's":
        assert time.monotonic() < deadline
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)


def test_no_other_command_works_in_a_folder_or_writes_its_file_and_other_folders_are_free(folder: Path, stash: Stash):
    # GIVEN a command whose job has written where the user's checkpoint was
    (folder / "other").mkdir()
    other, target = made(folder / "other"), str(folder / "x.stash.json")
    working = stash(folder, "profile", "--budget", "3m", "--noise", "0.1", "-o", target)
    wait_until_at_work(folder)
    # WHEN a second one is started in the same folder, and one elsewhere is to write the same file
    late, writer = stash(folder, "fix", "--budget", "1m"), stash(other, "profile", "--budget", "5", "-o", target)
    printed, of_writer = (each.communicate(timeout=120)[1] for each in (late, writer))
    # THEN both are refused after a while, and name the first, which goes on
    assert (late.returncode, writer.returncode) == (2, 2), printed + of_writer
    assert working.poll() is None
    assert "error: `stash profile" in printed
    assert all(f"(process {working.pid}, since " in each for each in (printed, of_writer))
    assert "is going to write" in of_writer
    # AND with a file of its own, the other folder's is free
    free = stash(other, "profile", "--budget", "1", "--noise", "50", "-o", str(folder / "y.stash.json"))
    printed = free.communicate(timeout=120)[1]
    assert free.returncode == 0, printed
    # AND at the end the user's checkpoint is there
    end(working)
    assert (folder / "ckpt.txt").read_text() == "the user's"
    left = {path.name for path in folder.iterdir()} - {"x.stash.json"}  # of a profile that was interrupted
    assert left == {"ckpt.txt", "train.py", "other", "y.stash.json"}


@pytest.mark.slow  # test_folder_lock has locks that are shared
def test_a_run_that_is_watched_shares_its_folder_with_others_that_are_and_with_no_profile(folder: Path, stash: Stash):
    watched = stash(folder, "watch")
    wait_until_at_work(folder)
    late = stash(folder, "profile", "--budget", "5")
    printed = late.communicate(timeout=120)[1]
    assert late.returncode == 2, printed
    assert f"error: `stash watch train.py` (process {watched.pid}, since " in printed
    (folder / "ckpt.txt").unlink(missing_ok=True)
    another = stash(folder, "watch")
    wait_for_records(folder, 2)
    for process in (watched, another):
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)


def wait_for_records(folder: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(folder.glob("*.watch.jsonl"))) < number:
        assert time.monotonic() < deadline
        time.sleep(0.02)
