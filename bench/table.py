"""How benchmarks show their results: Markdown tables, figures of a sample in one cell, pages and progress.

Knows nothing of what is measured. Cells may be anything; ``None`` is an empty one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from bench.machine import ROOT, machine


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    return "\n".join([row(heads), row(["---"] * len(heads)), *map(row, rows)])


def row(cells: Iterable[object]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"


def show(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Print a table row by row, each as soon as it is known."""
    print(row(heads), row(["---"] * len(heads)), sep="\n", flush=True)
    for cells in rows:
        print(row(cells), flush=True)


def median_90(errors: Iterable[float], separator: str = ", ") -> str:
    """Median and 90th percentile of the sizes of relative errors; a dash without any."""
    sizes = np.abs(list(errors))
    return separator.join(f"{np.percentile(sizes, q):.1%}" for q in (50, 90)) if len(sizes) else "–"


def span(values: Sequence[float], form: str = "{:.3f}") -> str:
    """A median and the range; a dash without any."""
    if not len(values):
        return "–"
    middle, low, high = (form.format(f(values)) for f in (np.median, np.min, np.max))
    return f"{middle} ({low} to {high})"


def report(*parts: str) -> None:
    """Print the machine, and then each part after an empty line."""
    print(machine(), *parts, sep="\n\n")


def progress(*cells: object) -> None:
    """A line on standard error, while a benchmark goes on."""
    print("done:", *cells, sep="  ", file=sys.stderr, flush=True)


def deliver(text: str, out: Path) -> None:
    """Write a page; print it where ``out`` is ``-``."""
    if str(out) == "-":
        print(text)
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text.rstrip() + "\n", encoding="utf-8")
    print(f"wrote {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")


def page_path(name: str) -> Path:
    """Where a page is written unless ``--out`` names another place."""
    return ROOT / "build" / f"{name}.md"
