"""Sequential reads by fio, where it is installed: the same reads as ``reader``'s, by a well-known program.

Knows fio's options and its log of every read; one run, as a disk that rests between two may be faster at first.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from stash.measure.probe.pieces import Piece
from stash.measure.probe.reader import BLOCK
from stash.measure.probe.repeat import Mark

_STARTING = 5.0


def present() -> bool:
    return shutil.which("fio") is not None


def command(pieces: Sequence[Piece], seconds: float, direct: bool, logs: Path) -> list[str] | None:
    """One thread, plain reads of one block at a time: what ``reader`` does.

    None for pieces that fio cannot be told of: it reads either one stretch of one file, or the same length
    from the start of each of several files.
    """
    paths = list(dict.fromkeys(piece.path for piece in pieces))
    ends = [piece.offset + piece.bytes for piece in pieces]
    adjacent = len(paths) == 1 and ends[:-1] == [piece.offset for piece in pieces[1:]]
    fronts = len(paths) == len(pieces) and {(piece.offset, piece.bytes) for piece in pieces} == {(0, pieces[0].bytes)}
    if not (adjacent or fronts):
        return None
    return [
        *("fio", "--name=stash", "--readonly", "--allow_file_create=0", "--output-format=json"),
        *("--rw=read", "--ioengine=psync", "--thread", f"--bs={BLOCK}", f"--direct={int(direct)}"),
        "--filename=" + ":".join(str(path).replace("\\", "\\\\").replace(":", "\\:") for path in paths),
        *(f"--nrfiles={len(paths)}", "--file_service_type=sequential", f"--offset={pieces[0].offset}"),
        *(f"--size={sum(piece.bytes for piece in pieces)}", f"--runtime={max(1, round(seconds))}"),
        f"--write_lat_log={logs / 'fio'}",
    ]


def marks_of(log: str) -> list[Mark] | None:
    """How far fio's reads had come when; a line of its log: milliseconds, nanoseconds of the read, direction, bytes.

    Only the reads' own time counts, not fio's between them. None from text that is no such log.
    """
    try:
        rows = [[int(field) for field in line.split(",")[:4]] for line in log.splitlines()]
        moments = accumulate(nanoseconds / 1e9 for _, nanoseconds, _, _ in rows)
        counts = accumulate(size for _, _, _, size in rows)
        return [(0.0, 0), *zip(moments, counts, strict=True)] if rows else None
    except ValueError:
        return None


def read(pieces: Sequence[Piece], seconds: float, direct: bool, logs: Path) -> list[Mark] | None:
    """Marks of reading the pieces once, as far as the time goes; None if fio cannot."""
    argv = command(pieces, seconds, direct, logs)
    if argv is None:
        return None
    try:
        logs.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(argv, capture_output=True, cwd=logs, timeout=seconds + _STARTING, check=False)
        return marks_of((logs / "fio_clat.1.log").read_text()) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None
    finally:
        for path in logs.glob("fio_*.log"):
            path.unlink(missing_ok=True)
