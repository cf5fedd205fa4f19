"""Runs steps, and undoes those that were run, whatever happens in between.

What the steps are for is not known here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable

from stash.core.errors import StashError, UserError
from stash.core.interrupts import postpone_requests
from stash.lab.testbed.topology import Argv, Step

_PATIENCE = 30.0
_PACKAGES = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
"""What every testbed runs, and where it comes from on Debian; the rest is util-linux too."""


class Executor:
    """Runs steps and remembers how to undo those that succeeded."""

    def __init__(self) -> None:
        self._undo: list[Argv] = []

    def do(self, steps: Iterable[Step]) -> None:
        """Run the steps in order; an interruption falls between two. Raises UserError at the first that fails."""
        for step in steps:
            with postpone_requests():
                done = run_command(step.argv)
                if done.returncode == 0 and step.undo is not None:
                    self._undo.append(step.undo)
            if done.returncode != 0:
                raise UserError(_explain(step, done.stderr.strip()))

    def undo(self) -> None:
        """Remove what the steps made, the last first; raises StashError naming what could not be removed."""
        left: list[str] = []
        with postpone_requests():
            while self._undo:
                argv = self._undo.pop()
                words = self._insist(argv)
                if words:
                    left.append(f"`{' '.join(argv)}`: {words}")
        if left:
            raise StashError(
                f"the testbed could not be removed completely ({'; '.join(left)}); try `stash lab testbed clean`"
            )

    def _insist(self, argv: Argv) -> str:
        """What the command complained of, after trying for two seconds: killed processes take a moment to go."""
        deadline = time.monotonic() + 2.0
        while True:
            done = run_command(argv)
            if done.returncode == 0 or "No such file" in done.stderr:
                return ""
            if time.monotonic() > deadline:
                return done.stderr.strip()
            time.sleep(0.05)


def require_programs() -> None:
    """Raises UserError without root, or naming the first program of a testbed's that this machine lacks."""
    if os.geteuid() != 0:
        raise UserError("a testbed needs root; run it with sudo")
    for program in _PACKAGES:
        if shutil.which(program, path=_path()) is None:
            raise _missing(program)


def _missing(program: str) -> UserError:
    return UserError(
        f"a testbed needs the program `{program}`; install {_PACKAGES.get(program, 'util-linux')}"
    )


def run_command(argv: Argv, patience: float = _PATIENCE) -> subprocess.CompletedProcess[str]:
    """One command out of reach of Ctrl-C, its output captured; raises UserError where there is no such program."""
    try:
        return subprocess.run(
            argv,
            capture_output=True,
            text=True,
            check=False,
            timeout=patience,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", "PATH": _path()},
        )
    except FileNotFoundError:
        raise _missing(argv[0]) from None
    except subprocess.TimeoutExpired:
        raise StashError(f"`{' '.join(argv)}` did not end within {patience:g} s") from None


def _path() -> str:
    """The search path with the folders of system programs, which users often lack."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def _explain(step: Step, words: str) -> str:
    words = words.splitlines()[-1] if words else "no reason given"
    if step.argv[:3] == ("ip", "netns", "add") and "File exists" in words:
        return f"a network namespace called {step.argv[3]} exists already and is not ours; it was left alone: try again"
    if step.argv[-1].endswith("cgroup.subtree_control"):
        return (
            f"the control group of {step.argv[-1]} does not pass {step.argv[-2][1:]} on to new groups ({words}), "
            "as in a container; run the testbed on the machine itself, or leave cpus and disk out"
        )
    return f"`{step.describe()}` failed: {words}; `stash lab testbed doctor` says what this machine can emulate"
