"""The stopwatch that untouched jobs run under, and the page cache before they start."""

from __future__ import annotations

import os
from pathlib import Path

from bench.machine import ROOT

TIMED = ROOT / "bench" / "timed.py"
"""Runs another module with a stopwatch; started as a file, so that it needs no particular folder."""


def drop_cache(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
