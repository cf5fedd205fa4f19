"""The ``stash profile`` of a cell in words, which every engine runs in its own way."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from stash.base.ladder import NAMES
from stash.derive.study.cells import Cell
from stash.rent.study.submission import ProgramWords

OURS = (sys.executable, "-m", "stash")
"""This very Stash, wherever this machine's folders are seen."""
HERE = "this machine"
"""The lane of everything that runs here: cells would disturb each other."""


def profile(cell: Cell, output: Path | str, stash: ProgramWords = OURS, devices: bool = True) -> ProgramWords:
    """``stash profile`` with the study's settings, up to the job; ``devices``: also how many ranks a node has."""
    how = cell.settings
    words = [*stash, "profile", "-o", str(output), "--precision", f"{how.precision:g}", "--budget", f"{how.budget:g}"]
    words += ["--patience", f"{how.patience:g}"]
    if tuple(how.rungs) != NAMES:
        words += ["--rungs", ",".join(how.rungs)]
    if how.isolate:
        words.append("--isolate")
    if devices and cell.place.target.devices is not None:
        words += ["--nproc-per-node", str(cell.place.target.devices)]
    return tuple(words)


def job(cell: Cell) -> ProgramWords:
    """What is profiled, as ``stash profile`` takes it."""
    if cell.zoo is None:
        return cell.words
    words = ["--workload", cell.zoo]
    words += ["--batch", str(cell.batch)] if cell.batch is not None else []
    words += ["--data", cell.data] if cell.data is not None else []
    return (*words, "--", *cell.words) if cell.words else tuple(words)


def head(cell: Cell) -> str:
    """The comment on top of a cell's script."""
    return f"# {cell.title}, repeat {cell.repeat + 1}"


def line(words: ProgramWords) -> str:
    """As a line of shell."""
    return shlex.join(words)
