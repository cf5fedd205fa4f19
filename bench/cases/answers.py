"""What Stash says of a case, judged against its truth.

A case is run in a folder of its own, as a user types it. Only what ``stash show --json`` prints is judged.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cases.truths import Case
from bench.machine import ROOT, STASH
from stash.advice.run_words import SUBJECTS

CONFIDENT = ("stall", "tie", "compute", "run")
"""Kinds of verdicts that name something."""
_PLACES = 3
"""Of the lines that are named, so many are looked at."""
_NEAR = 1
"""Lines that a statement of several may be off by."""
_PATIENCE = 300.0
_SHORT = {"EPOCHS": "10"}
"""For scripts that go on without end."""
_TIMES = {
    r"([\d.]+) ms a step": 1.0,
    r"seconds a step ([\d.]+)": 1e3,
    r"([\d.]+) ms at last": 1.0,
    r"([\d.]+) ms in the first": 1.0,
}
"""How scripts print what a step took, and the milliseconds of one of it; the last one holds."""


@dataclass(frozen=True)
class Ended:
    """A command that was run to its end."""

    code: int
    output: str
    seconds: float


@dataclass(frozen=True)
class Answer:
    """What was said, and whether it is right; ``None``: there is nothing to be right about."""

    crashed: bool
    kind: str = ""
    headings: tuple[str, ...] = ()
    row: bool | None = None
    place: bool | None = None
    remedy: bool | None = None
    seconds: float = 0.0
    says: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether something else is named, and not as one of what may be."""
        return self.kind in CONFIDENT and self.row is False


@contextmanager
def folder_of(case: Case, script: Path | None = None) -> Iterator[Path]:
    """A folder with a copy of the script, or of that one in its place, and room for what it writes."""
    with tempfile.TemporaryDirectory(prefix="case-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        shutil.copy(script or case.path, folder)
        yield folder


def run(command: list[str], folder: Path, patience: float = _PATIENCE, **variables: str) -> Ended:
    """Run a command to its end, or end it: then its code is 124."""
    began = time.monotonic()
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "TMPDIR": str(folder / "tmp"),
        **variables,
    }
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate()
        return Ended(124, output, time.monotonic() - began)
    return Ended(process.returncode, output, time.monotonic() - began)


def plain_command(case: Case, *words: str) -> list[str]:
    if case.nproc == 1:
        return [sys.executable, *words]
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(case.nproc))
    return [sys.executable, *launcher, *words]


def time_step(case: Case, script: Path | None = None, **variables: str) -> float | None:
    """Milliseconds a step of a case, or of ``script`` in its place, by its own watch; ``None`` if it says nothing."""
    with folder_of(case, script) as folder:
        ended = run(plain_command(case, case.path.name), folder, **_SHORT, **variables)
    found = [
        float(times[-1]) * milliseconds
        for pattern, milliseconds in _TIMES.items()
        if (times := re.findall(pattern, ended.output))
    ]
    return found[0] if found and ended.code == 0 else None


def command_of(case: Case, name: str, *options: str) -> list[str]:
    """A command of Stash's on the script."""
    ranks = [] if case.nproc == 1 else ["--nproc-per-node", str(case.nproc)]
    return [*STASH, name, *options, *ranks, case.path.name]


def profile(case: Case, budget: str, keep: Path) -> Answer:
    """Profile a case and judge what is said; its artefact and output stay in ``keep``."""
    kept = keep / case.name.replace("/", "-")
    with folder_of(case) as folder:
        command = command_of(case, "profile", "--budget", budget, "-o", "run.stash.json")
        ended = run(command, folder)
        kept.with_suffix(".txt").write_text(ended.output, encoding="utf-8")
        artefact = folder / "run.stash.json"
        if artefact.exists():
            shutil.copy(artefact, kept.with_suffix(".stash.json"))
        shown = (
            run([*STASH, "show", "--json", artefact.name], folder) if artefact.exists() else None
        )
    if ended.code != 0 or "Traceback" in ended.output or shown is None or shown.code != 0:
        last = (ended.output.strip().splitlines() or ["nothing"])[-1]
        return Answer(crashed=True, seconds=ended.seconds, says=last)
    return judge(case, json.loads(shown.output), ended.seconds)


def judge(case: Case, shown: dict[str, Any], seconds: float = 0.0) -> Answer:
    """Whether the row, the line and the remedy of a case are named in what ``stash show --json`` prints."""
    verdict = shown["verdict"]
    headings = tuple(verdict["stalls"]) or ((verdict["stall"],) if verdict["stall"] else ())
    sentences = " ".join([verdict["text"], *verdict["next_steps"]])
    return Answer(
        crashed=False,
        kind=verdict["kind"],
        headings=headings,
        row=any(name in case.rows for name in headings) or _names_row(case, verdict["text"]),
        place=_names_line(case, shown, sentences) if case.lines else None,
        remedy=re.search(case.remedy, " ".join(verdict["next_steps"]), re.IGNORECASE) is not None,
        seconds=seconds,
        says=verdict["text"],
    )


def _names_row(case: Case, text: str) -> bool:
    """Whether a sentence of the verdict is about a right row between steps that is not its heading."""
    return any(SUBJECTS[name][0] in text for name in case.rows if name in SUBJECTS)


def _names_line(case: Case, shown: dict[str, Any], sentences: str) -> bool:
    """In a sentence, or as one of the first places of a right row."""
    script = case.path.name
    named = [int(line) for line in re.findall(rf"{re.escape(script)}:(\d+)", sentences)]
    places = (shown.get("run") or {}).get("places") or []
    right = [
        each for each in places if each["row"] in case.rows and Path(each["file"]).name == script
    ]
    named += [each["line"] for each in right[:_PLACES]]
    return any(abs(line - true) <= _NEAR for line in named for true in case.lines)
