"""Runs one job under one tool on a testbed: its own environment, its changed script, its launches.

Knows how to make a tool's virtual environment, apply its changes to a script and count the lines, and start it on
every host. What the tool's output means is not known here.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from bench.peers.answers import Answer
from bench.peers.jobs import BATCH, RANKS, Fault
from bench.workloads import drop_cache
from stash.core.errors import StashError
from stash.lab.testbed.bed import Testbed
from stash.lab.testbed.emulation import dump

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
MAX_SECONDS = 240.0
_ports = itertools.count(29600)


class Tool(Protocol):
    """What the module of a tool offers."""

    NAME: str

    def watch(self, place: Place) -> Answer:
        """Run the job under the tool and read its answer; raises LaunchError."""


class LaunchError(StashError):
    """A launch that failed; its message is the exact line the tool or the job ended with."""


@dataclass(frozen=True)
class Change:
    """A piece of the user's script, and what the tool's documentation makes of it."""

    before: str
    after: str


@dataclass(frozen=True)
class Place:
    """Where a job runs: its fault, its running cluster, a folder for its files, and how many steps it takes."""

    fault: Fault
    bed: Testbed
    data: Path
    """The samples' files; empty unless the job reads files."""
    folder: Path
    steps: int

    @property
    def model(self) -> Path:
        return self.folder / "model.yaml"

    def inside(self, name: str) -> Place:
        """The same place with a fresh folder of its own."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "model.yaml").write_text(dump(self.fault.emulation))
        return replace(self, folder=folder)

    def options(self, endless: bool = False) -> list[str]:
        """The job's command line."""
        words = ["--model", str(self.model), "--batch", str(BATCH)]
        if not endless:
            words += ["--steps", str(self.steps)]
        if self.fault.cold:
            words += ["--data", str(self.data)]
        return words


def python(tool: str) -> str:
    """The interpreter of a tool's own environment, made from its pinned requirements first; raises LaunchError."""
    home = HERE / ".venvs" / tool
    requirements = HERE / "requirements" / f"{tool}.txt"
    done = home / "installed.txt"
    if not done.exists() or done.read_text() != requirements.read_text():
        pip = [
            str(home / "bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "install",
            "--quiet",
        ]
        venv = [sys.executable, "-m", "venv", "--clear", str(home)]
        for command in (venv, [*pip, "--requirement", str(requirements)]):
            made = subprocess.run(command, capture_output=True, text=True, check=False)
            if made.returncode != 0:
                raise LaunchError(
                    f"its virtual environment could not be made: {last_line(made.stderr)}"
                )
        done.write_text(requirements.read_text())
    return str(home / "bin/python")


def pinned_version(tool: str, package: str) -> str:
    """The version of a package in a tool's requirements."""
    lines = (HERE / "requirements" / f"{tool}.txt").read_text().splitlines()
    return next(line.partition("==")[2] for line in lines if line.startswith(f"{package}=="))


def apply_changes(script: str, changes: Sequence[Change]) -> str:
    """A script of this folder with the changes made; each piece must occur exactly once."""
    text = (HERE / script).read_text()
    for change in changes:
        if text.count(change.before) != 1:
            raise StashError(
                f"{script} holds {text.count(change.before)} times, not once: {change.before!r}"
            )
        text = text.replace(change.before, change.after)
    return text


def torchrun(
    place: Place, node: int, interpreter: str, script: Path, options: Sequence[str], port: int
) -> list[str]:
    """The ordinary launch of a script on one host of the cluster."""
    nodes = place.bed.nodes
    return [
        interpreter,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        str(nodes),
        "--node-rank",
        str(node),
        "--nproc-per-node",
        str(RANKS // nodes),
        "--master-addr",
        place.bed.address(0),
        "--master-port",
        str(port),
        str(script),
        *options,
    ]


def run(place: Place, command: Callable[[int, int], list[str]]) -> tuple[str, float]:
    """Start ``command(node, port)`` on every host; (output of node 0, wall seconds). Raises LaunchError.

    A job that reads files finds none of them in the page cache.
    """
    if place.fault.cold:
        os.sync()  # pages not written yet cannot be dropped
        drop_cache(place.data)
    port = next(_ports)
    environment = {
        "PYTHONPATH": str(SOURCE),
        "NO_COLOR": "1",
        "COLUMNS": "200",
        "PYTHONUNBUFFERED": "1",
    }
    began = time.monotonic()
    started = [
        place.bed.run(command(node, port), node, environment, cwd=place.folder)
        for node in range(place.bed.nodes)
    ]
    try:
        codes = [one.wait(max(1.0, began + MAX_SECONDS - time.monotonic())) for one in started]
    except subprocess.TimeoutExpired:
        for one in started:
            one.kill()
        raise LaunchError(
            f"still running after {MAX_SECONDS:g} s: {last_line(started[0].output)}"
        ) from None
    wall = time.monotonic() - began
    for one in started:
        (place.folder / f"output{one.node}.txt").write_text(one.output)
    if any(codes):
        failed = next(one for one, code in zip(started, codes, strict=True) if code)
        raise LaunchError(last_line(failed.output))
    return started[0].output, wall


def run_changed(
    place: Place, tool: str, script: str, changes: Sequence[Change]
) -> tuple[str, float]:
    """Run the script as a tool's documentation changes it, in the tool's environment; as ``run``."""
    interpreter, path = python(tool), place.folder / "train.py"
    path.write_text(apply_changes(script, changes))
    return run(
        place, lambda node, port: torchrun(place, node, interpreter, path, place.options(), port)
    )


def last_line(output: str) -> str:
    """The line that names the error: the last that looks like one, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line.split(":")[0] or line.startswith("error:")]
    return (errors or lines or ["(no output)"])[-1][:200]
