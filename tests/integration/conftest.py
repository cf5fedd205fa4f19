"""What the integration tests share: a folder of real files, and the real ``stash profile`` in a process of its own.

Everything a profile starts inherits an environment variable with a value of its own, so a test can prove
that nothing was left running. Waiting is bounded by ``PATIENCE``, for a machine that is busy with other work: no test
asks how fast something was.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import pytest

import stash
from stash.base.records import Block, Profile
from stash.cli.main import main

SCRIPTS = Path(__file__).parent / "scripts"
MARK = "STASH_TEST_MARK"
FILES = 192
PATIENCE = 240.0
"""Seconds until what has not happened is taken never to happen; on a quiet machine everything takes a few."""


@dataclass
class Outcome:
    """What one ``stash profile`` did: its exit, its words, its artefact if it left one."""

    code: int
    stdout: str
    stderr: str
    profile: Profile | None
    survivors: list[str] = field(default_factory=list)
    """Command lines of processes it started that were still there when it had ended."""

    @property
    def error(self) -> str:
        """Its last line on standard error."""
        return (self.stderr.strip().splitlines() or [""])[-1]


class Started:
    """A ``stash profile`` that runs; ``end()`` waits for it."""

    def __init__(
        self, arguments: tuple[str, ...], output: Path, log: Path, folder: Path, variables: dict[str, str], own: bool
    ) -> None:
        self.mark = uuid.uuid4().hex
        self.output, self.log = output, log
        command = [sys.executable, "-m", "stash", "profile"] if own else []
        environment = {**os.environ, MARK: self.mark, "NO_COLOR": "1", "COLUMNS": "200", **variables}
        with self.log.open("w") as errors:
            self.popen = subprocess.Popen(
                [*command, *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def processes(self) -> list[psutil.Process]:
        """The live processes of this profile, itself included."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(MARK) == self.mark
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue  # gone, or not ours to look at
        return found

    def ranks(self) -> dict[int, psutil.Process]:
        """Its training processes by rank (loader workers, which are their children, left out)."""
        found: dict[int, psutil.Process] = {}
        for process in self.processes():
            try:
                rank, parent = process.environ().get("RANK"), process.parent()
                if rank is not None and (parent is None or parent.environ().get("RANK") is None):
                    found[int(rank)] = process
            except psutil.Error:
                continue
        return found

    def said(self) -> str:
        """Its standard error so far."""
        return self.log.read_text()

    def wait_for(self, text: str, timeout: float = PATIENCE) -> None:
        """Until ``text`` stands on standard error."""
        self.wait_until(lambda: text in self.said(), timeout, f"{text!r} in {self.said()!r}")

    def wait_until(self, condition: Callable[[], object], timeout: float = PATIENCE, what: str = "") -> None:
        """Until ``condition()`` holds; fails if it never does."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.popen.poll() is None, f"ended with {self.popen.returncode}: {self.said()}"
            assert time.monotonic() < deadline, f"waited {timeout} s for {what or condition}"
            time.sleep(0.05)

    def end(self, timeout: float = PATIENCE) -> Outcome:
        """Wait until it ended, and look at what it left."""
        try:
            stdout, _ = self.popen.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"stash profile did not end within {timeout} s; it said: {self.said()}")
        survivors = [" ".join(process.cmdline()) for process in self.processes() if process.is_running()]
        profile = stash.load(self.output) if self.output.exists() else None
        return Outcome(self.popen.returncode, stdout, self.said(), profile, survivors)

    def kill(self) -> None:
        """Leave nothing behind, whatever went wrong."""
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        self.popen.wait(timeout=PATIENCE)


Start = Callable[..., Started]
RunProfile = Callable[..., Outcome]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small pictures as ``.npy`` files; a number in each name."""
    folder = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for number in range(FILES):
        np.save(folder / f"{number:04d}.npy", random.integers(0, 256, (3, 32, 32), dtype=np.uint8))
    return folder


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """``start(*arguments)``: begin a ``stash profile`` in the folder of scripts, ended at the latest with the test.

    ``program=`` replaces ``python -m stash profile`` and its usual options by a command of the test's own.
    """
    started: list[Started] = []

    def begin(
        *arguments: object,
        output: Path | None = None,
        budget: float = 1,
        precision: float = 50,
        folder: Path = SCRIPTS,
        program: tuple[object, ...] | None = None,
        **variables: str,
    ) -> Started:
        output = output or tmp_path / f"run-{len(started)}.stash.json"
        usual = ("--budget", budget, "--precision", precision, "-o", output)
        words = tuple(map(str, program if program is not None else (*usual, *arguments)))
        log = tmp_path / f"stderr-{len(started)}.log"
        run = Started(words, output, log, folder, variables, own=program is None)
        started.append(run)
        return run

    yield begin
    for run in started:
        run.kill()


@pytest.fixture
def run_profile(start: Start) -> RunProfile:
    """``run_profile(*arguments) -> Outcome``: the real command, to its end."""

    def run(*arguments: object, timeout: float = PATIENCE, **options: object) -> Outcome:
        return start(*arguments, **options).end(timeout)

    return run


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunProfile:
    """``typed(*arguments) -> Outcome``: the same command in this process, for what must end before a job is started.

    Starting anything all the same fails the test.
    """

    def run(*arguments: object, output: Path | None = None) -> Outcome:
        output = output or tmp_path / "run.stash.json"
        monkeypatch.chdir(SCRIPTS)
        monkeypatch.setattr(sys, "argv", ["stash", "profile", "-o", str(output), *map(str, arguments)])
        monkeypatch.setattr(subprocess, "Popen", lambda command, **_: pytest.fail(f"{command} was started"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err, None)

    return run


@pytest.fixture
def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measured(outcome: Outcome) -> Profile:
    """The profile of a run that went well; fails with everything that was said if it did not."""
    assert outcome.code == 0, f"exit code {outcome.code}\n{outcome.stdout}\n{outcome.stderr}"
    assert outcome.profile is not None, outcome.stderr
    assert not outcome.survivors, outcome.survivors
    return outcome.profile


def blocks_of(profile: Profile, rung: str) -> list[Block]:
    """The blocks measured under one rung."""
    return [block for block in profile.blocks if block.rung == rung]


def skipped(profile: Profile) -> dict[str, str]:
    """Why each rung was left out."""
    return {item.rung: item.why for item in profile.skipped}
