"""The ``stash profile`` of a cell in words, which every engine runs in its own way."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from stash.core.ladder import NAMES
from stash.core.version import __version__
from stash.study.cells import Cell
from stash.study.submission import ProgramWords

OURS = (sys.executable, "-m", "stash")
"""This very Stash, wherever this machine's folders are seen."""
HERE = "this machine"
"""The lane of everything that runs here: cells would disturb each other."""


def profile(cell: Cell, output: Path | str, stash: ProgramWords = OURS, devices: bool = True) -> ProgramWords:
    """``stash profile`` with the study's settings, up to the job; ``devices``: also how many ranks a node has."""
    how = cell.settings
    words = [*stash, "profile", "-o", str(output), "--precision", f"{how.precision:g}", "--budget", f"{how.budget:g}"]
    words += ["--start-timeout", f"{how.patience:g}"]
    if tuple(how.rungs) != NAMES:
        words += ["--rungs", ",".join(how.rungs)]
    if how.isolate:
        words.append("--isolate")
    if devices and cell.place.target.devices is not None:
        words += ["--nproc-per-node", str(cell.place.target.devices)]
    return tuple(words)


def probe(cell: Cell, folder: str, machine: str, stash: ProgramWords = OURS) -> str:
    """Lines of shell that leave this machine's probe in ``$probe``, measured unless another cell has; empty without.

    ``folder`` and ``machine`` are of shell. A probe that fails is told, and its cell goes on without.
    """
    seconds = cell.settings.probe
    if seconds is None:
        return ""
    known = repr((cell.place.name, cell.place.target.devices, cell.data, __version__))
    name = f"{hashlib.sha256(known.encode()).hexdigest()[:8]}-{machine}.host.json"
    words = [*stash, "probe", "--no-metadata", "--budget", f"{seconds:g}"]
    words += ["--instance", cell.place.instance.name] if cell.place.instance is not None else []
    words += ["--data", cell.data] if cell.data is not None else []
    return (
        f'mkdir -p {folder}\nprobe={folder}/{name}\n[ -e "$probe" ] || {line(tuple(words))} -o "$probe"'
        ' || { echo "note: this machine could not be probed"; probe=; }\n'
    )


def job(cell: Cell) -> ProgramWords:
    """What is profiled, as ``stash profile`` takes it."""
    if cell.zoo is None:
        return cell.words
    words = ["--workload", cell.zoo]
    words += ["--batch", str(cell.batch)] if cell.batch is not None else []
    words += ["--data", cell.data] if cell.data is not None else []
    return (*words, "--", *cell.words) if cell.words else tuple(words)


def with_probe(cell: Cell, words: ProgramWords) -> str:
    """``stash profile`` as a line of shell, up to the job, with the links in ``$probe`` if there are any."""
    return line(words) + (' ${probe:+--probe "$probe"}' if cell.settings.probe else "")


def head(cell: Cell) -> str:
    """The comment on top of a cell's script."""
    return f"# {cell.title}, repeat {cell.repeat + 1}"


def line(words: ProgramWords) -> str:
    """As a line of shell."""
    return shlex.join(words)
