"""Measurements that are kept beside the benchmarks: CSV tables, plain or compressed by their name's ``.gz``.

What is written again with the same rows is the same file, byte by byte.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

BENCH = Path(__file__).parent
PUBLISHED = BENCH / "predict" / "data"
"""Tables that others published; their sources are in its README."""


def rows(path: Path) -> list[dict[str, str]]:
    """Every line by the names in the first one; nothing if there is no such file yet."""
    return list(csv.DictReader(io.StringIO(text(path)))) if path.exists() else []


def load_published(name: str) -> list[dict[str, str]]:
    """The lines of a published table."""
    return rows(PUBLISHED / f"{name}.csv.gz")


def text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def numbers(path: Path) -> np.ndarray:
    """A table of numbers alone, ``[line, column]``; lines that begin with # are comments."""
    return np.loadtxt(io.StringIO(text(path)), delimiter=",", comments="#", ndmin=2)


def write(path: Path, fields: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """The whole table or nothing, as a benchmark may be interrupted; numbers with six digits, ``None`` empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(fields)
    writer.writerows(
        [f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line] for line in lines
    )
    write_text(path, out.getvalue())


def write_text(path: Path, content: str) -> None:
    data = content.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    part.replace(path)
