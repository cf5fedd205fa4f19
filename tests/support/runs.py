"""A real ``stash profile`` in a process of its own: started, watched, hurt, ended.

Everything a profile starts inherits an environment variable with a value of its own, so a test can prove
that nothing was left running. Waiting is bounded by ``PATIENCE``, for a machine that is busy with other work: no test
asks how fast something was.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

import stash
from stash.core.records.profile import Profile
from stash.measure.launcher.job import Job, may_train_on_several

MARK = "STASH_TEST_MARK"
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
    def error(self):
        """Its last line on standard error."""
        return (self.stderr.strip().splitlines() or [""])[-1]


def two_ranks(words, folder):
    """The option for two ranks, for a script that forms a process group if no number is asked for."""
    if {"--", "--nproc-per-node", "--nnodes"} & set(words):
        return ()
    scripts = [folder / word for word in words if word.endswith(".py")]
    ranks = any(may_train_on_several(Job("script", str(script))) for script in scripts)
    return ("--nproc-per-node", "2") if ranks else ()


class Started:
    """A ``stash profile`` that runs; ``end()`` waits for it."""

    def __init__(
        self,
        arguments,
        output,
        log,
        folder,
        variables,
        own,
        standard_input=Path(os.devnull),
    ):
        self.mark = uuid.uuid4().hex
        self.output, self.log = output, log
        command = [sys.executable, "-m", "stash", "profile"] if own else []
        environment = {
            **os.environ,
            MARK: self.mark,
            "NO_COLOR": "1",
            "COLUMNS": "200",
            **variables,
        }
        with self.log.open("w") as errors, standard_input.open("rb") as given:
            self.popen = subprocess.Popen(
                [*command, *arguments],
                cwd=folder,
                env=environment,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def processes(self):
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

    def ranks(self):
        """Its training processes by rank (loader workers, which are their children, left out)."""
        found = {}
        for process in self.processes():
            try:
                rank, parent = process.environ().get("RANK"), process.parent()
                if rank is not None and (parent is None or parent.environ().get("RANK") is None):
                    found[int(rank)] = process
            except psutil.Error:
                continue
        return found

    def list_sockets(self):
        """Where its processes can be spoken to: address, port, and kind."""
        found = set()
        for process in self.processes():
            try:
                for each in process.net_connections("inet"):
                    kind = "udp" if each.type == socket.SOCK_DGRAM else "tcp"
                    if each.status == psutil.CONN_LISTEN or kind == "udp":
                        found.add((each.laddr.ip, each.laddr.port, kind))
            except psutil.Error:
                continue  # gone by now
        return sorted(found)

    def stderr_text(self):
        """Its standard error so far."""
        return self.log.read_text()

    def wait_for(self, text, timeout=PATIENCE):
        """Until ``text`` stands on standard error."""
        self.wait_until(
            lambda: text in self.stderr_text(), timeout, f"{text!r} in {self.stderr_text()!r}"
        )

    def wait_until(self, condition, timeout=PATIENCE, what=""):
        """Until ``condition()`` holds; fails if it never does."""
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.popen.poll() is None, (
                f"ended with {self.popen.returncode}: {self.stderr_text()}"
            )
            assert time.monotonic() < deadline, f"waited {timeout} s for {what or condition}"
            time.sleep(0.05)

    def end(self, timeout=PATIENCE):
        """Wait until it ended, and look at what it left."""
        try:
            stdout, _ = self.popen.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(
                f"stash profile did not end within {timeout} s; it said: {self.stderr_text()}"
            )
        survivors = [
            " ".join(process.cmdline()) for process in self.processes() if process.is_running()
        ]
        return Outcome(
            self.popen.returncode, stdout, self.stderr_text(), self.artefact(), survivors
        )

    def artefact(self):
        """What it left, if it left anything."""
        return stash.load(self.output) if self.output.exists() else None

    def kill(self):
        """Leave nothing behind, whatever went wrong."""
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        self.popen.wait(timeout=PATIENCE)
