"""What becomes of a watched job when its watcher is asked to end or is killed, and of what that has in memory."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until

from stash.monitor.records import load_record

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 5.0
BY_HAND = (
    "env",
    "--default-signal=INT,QUIT",
    sys.executable,
)  # a shell's background jobs ignore them
JOB = """
import os, signal, sys, time, torch
from pathlib import Path

def note(number, frame=None):
    with open("signals", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, note if "stays" in sys.argv or number == signal.SIGUSR1 else signal.SIG_DFL)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
Path("pid").write_text(str(os.getpid()))
try:
    for _ in range(3000):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).mean().backward()
        optimizer.step()
        time.sleep(0.02)
        if Path("end").exists():
            break
except KeyboardInterrupt:
    note(signal.SIGINT)
    time.sleep(1)  # saves a checkpoint
Path("done").touch()
"""


def end_of(number):
    """Whether that process has ended."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Watched:
    """A watched job in a folder, with places in memory that are the test's."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        (folder / "train.py").write_text(JOB)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MARK": str(folder)}
        self.before = set(Path("/dev/shm").glob("stash-watch-*"))
        words = (*BY_HAND, "-m", "stash", "watch", "-o", "run.watch.jsonl", "train.py", *arguments)
        self.process = subprocess.Popen(
            words,
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "errors").open("w"),
            start_new_session=True,
        )
        until(lambda: self.memory() != set() and (folder / "pid").exists() and self._steps())
        self.job = int((folder / "pid").read_text())

    def _steps(self):
        path = self.folder / "run.watch.jsonl"
        return path.exists() and load_record(path).header.ranks == 1

    def memory(self):
        """What this watch has in memory."""
        orders = (
            f"{folder}/orders.json"
            for folder in set(Path("/dev/shm").glob("stash-watch-*")) - self.before
        )
        return {Path(each).parent for each in orders if self._belongs(each)}

    def _belongs(self, orders):
        job = self.folder / "pid"
        with_orders = f"STASH_ORDERS={orders}".encode()
        try:
            return with_orders in Path(f"/proc/{job.read_text()}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def signals(self):
        path = self.folder / "signals"
        return path.read_text().split() if path.exists() else []

    def errors(self):
        return (self.folder / "errors").read_text()

    def stash(self, *words):
        command = (sys.executable, "-m", "stash", *words)
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    mark = f"MARK={tmp_path}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            continue


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_whole_group_reaches_the_job_once(folder, number):
    run = Watched(folder, "stays")
    os.killpg(run.process.pid, number)
    until(lambda: run.signals() != [])
    time.sleep(1.5)
    assert run.signals() == [number.name]
    if number != signal.SIGINT:
        os.killpg(run.process.pid, number)  # and once more
        until(lambda: len(run.signals()) > 1)
        time.sleep(1.5)
        assert run.signals() == [number.name] * 2
        (folder / "end").touch()
    assert run.process.wait(10) == 0
    assert (folder / "done").exists()


def test_ctrl_c_in_a_terminal_ends_both_and_interrupts_the_job_once(folder):
    (folder / "train.py").write_text(JOB)
    words = (sys.executable, "-m", "stash", "watch", "-o", "run.watch.jsonl", "train.py")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.environ.update(PYTHONPATH=str(ROOT / "src"), MARK=str(folder))
        os.execv(sys.executable, words)
    record = folder / "run.watch.jsonl"
    until(lambda: record.exists() and load_record(record).header.ranks == 1)
    os.write(terminal, b"\x03")
    until(lambda: end_of(child), MOST_SECONDS)
    os.waitpid(child, 0)
    os.close(terminal)
    assert (folder / "signals").read_text().split() == ["SIGINT"]
    assert (folder / "done").exists()


def test_the_next_command_removes_what_all_that_were_killed_have_left(folder):
    run = Watched(folder)
    kept = run.memory()
    others = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if path.exists() and path.read_text().rpartition(")")[2].split()[2] == str(run.process.pid)
    ]
    for process in others:  # the watcher and what it started but for the job
        if process != run.job:
            os.kill(process, signal.SIGKILL)
    run.process.wait()
    assert all(path.exists() for path in kept)
    after = run.stash("lab", "zoo")
    assert after.returncode == 0
    assert f"kill {run.job}" in after.stderr
    assert not any(path.exists() for path in kept)
    assert not end_of(run.job)
    assert run.stash("lab", "zoo").stderr == ""


def test_nohup_stays_nohup(folder):
    (folder / "train.py").write_text(JOB)
    words = (
        "nohup",
        sys.executable,
        "-m",
        "stash",
        "watch",
        "-o",
        "run.watch.jsonl",
        "train.py",
        "stays",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MARK": str(folder)}
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    record = folder / "run.watch.jsonl"
    until(lambda: record.exists() and load_record(record).header.ranks == 1)
    process.send_signal(signal.SIGHUP)
    time.sleep(1.5)
    assert not (folder / "signals").exists()
    (folder / "end").touch()
    assert process.wait(10) == 0
