"""What the report of a study costs: seconds to make its page, its size, and how long a browser takes to show it.

Of made-up studies of the paper's models and places (``tests/support/big_studies.py``) at more and more batches.
Seconds of making are of processor time; a browser's are its own account of what it did until the page was there
(scripts, style, layout), and of the wall.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.machine import ROOT, arguments, timed
from bench.table import report, table

sys.path.insert(0, str(ROOT / "tests" / "support"))

from big_studies import grid, many

from stash.study.page import page
from stash.ui.html import render
from tests.support.chromium import CHROMIUM, Chromium

BATCHES = (8, 16, 24, 32, 48, 64, 96, 128)
SIZES = (1, 3, 8)
"""Batches of each workload: 64, 192 and 512 cells."""
REPEATED = 3
MAX_BYTES, MAX_SECONDS = 8e6, 2.0
"""What 500 cells may take."""


def made(batches: int, path: Path) -> list[str]:
    """A row: cells, and seconds and bytes of their page, which is written to ``path``."""
    reading, found, _ = many(grid(batches=BATCHES[:batches]), path.parent)
    text, spent = timed(lambda: render(page(reading, found, "grid.yaml", "grid.study/results")))
    path.write_text(text, encoding="utf-8")
    return [str(len(found)), f"{spent:.2f}", f"{len(text.encode()) / 1e6:.2f}"]


def opened(pages: list[Path]) -> list[list[str]]:
    """Fewest seconds of several times: Chromium's work until each page was shown, and the wall's."""
    if CHROMIUM is None:
        return [["unknown", "unknown: Chromium is not installed"] for _ in pages]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Chromium(Path(folder))
        rows = []
        for path in pages:
            times = [_open(browser, path) for _ in range(REPEATED)]
            rows.append([f"{min(of):.2f}" for of in zip(*times, strict=True)])
        browser.close()
    return rows


def _open(browser: Chromium, path: Path) -> tuple[float, float]:
    browser.open(path)
    wall = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1e3
    return browser.busy_seconds(), wall


def main() -> int:
    arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        pages = [Path(folder) / f"{batches}.html" for batches in SIZES]
        rows = [made(batches, path) for batches, path in zip(SIZES, pages, strict=True)]
        rows = [[*row, *times] for row, times in zip(rows, opened(pages), strict=True)]
    heads = ("cells", "page made, s", "page, MB", "browser busy, s", "opens, s")
    report(table(heads, rows))
    size, busy = float(rows[-1][2]) * 1e6, float(rows[-1][3]) if CHROMIUM is not None else 0.0
    return int(size > MAX_BYTES or busy > MAX_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
