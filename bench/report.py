"""What a report costs: seconds from the command to the file, its size, and how long a browser takes to show it.

Against ranks and rounds, on profiles made up by ``bench.scale``. With ``--drawn-by`` also what drawing as many charts
takes in other ways: vl-convert's Vega-Lite, as SVG and as scripts in the page (docs/decisions/house.md).
Seconds are of processor time, since a report waits for nothing; how busy the machine is shows in them all the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench.machine import STASH, arguments, cost, timed
from bench.table import report, table
from stash.cli.report_command import read_page
from stash.ui.charts.svg import svg
from tests.support.chromium import CHROMIUM, Chromium

SIZES = ((2, 10), (16, 10), (16, 30), (16, 100), (128, 30), (1024, 30))
"""Ranks and rounds."""
REPEATED = 3
WIDTHS = (860, 350)
"""Pixels, at which a report draws every chart."""


def command(path: Path, out: Path) -> list[str]:
    """Median seconds of processor time of the command, and of `stash show` for the same profile."""
    commands = ([*STASH, "report", str(path), "-o", str(out)], [*STASH, "show", str(path), "--json"])
    return [f"{median(cost(each)[1] for _ in range(REPEATED)):.2f}" for each in commands]


def opened(pages: list[Path]) -> list[str]:
    """Seconds until Chromium has shown each page."""
    if CHROMIUM is None:
        return ["unknown: Chromium is not installed"] * len(pages)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Chromium(Path(folder))
        found = []
        for page in pages:
            browser.open(page)
            spent = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
            found.append(f"{spent / 1e3:.2f}")
        browser.close()
    return found


def drawn(path: Path) -> list[list[str]]:
    """Seconds of processor time to draw the charts of a report in each way, and what they add to the page."""
    import altair
    import vl_convert

    charts, values = read_page([str(path)]).charts, [{"x": i % 30, "y": 0.1 + i % 7 / 100} for i in range(210)]
    chart = altair.Chart(altair.Data(values=values), width=WIDTHS[0]).mark_point().encode(x="x:Q", y="y:Q")
    spec = chart.to_dict()

    def row(name: str, scripts: str, make: Callable[[], int]) -> list[str]:
        size, seconds = timed(make)
        return [name, f"{seconds:.3f}", f"{size / 1e3:.0f}", scripts]

    vega = [{**spec, "width": width} for _ in charts for width in WIDTHS]
    return [
        row("Stash's own SVG, two widths", "no", lambda: sum(len(svg(c, width)) for c in charts for width in WIDTHS)),
        row("Vega-Lite to SVG, the first", "no", lambda: len(vl_convert.vegalite_to_svg(spec))),
        row("Vega-Lite to SVG, all", "no", lambda: sum(len(vl_convert.vegalite_to_svg(each)) for each in vega)),
        row("Vega-Lite's scripts in the page", "yes", lambda: len(vl_convert.vegalite_to_html(spec, bundle=True))),
    ]


def main() -> int:
    wanted = arguments(__doc__, drawn_by=(False, "also other ways to draw the charts"))
    rows, pages = [], []
    with tempfile.TemporaryDirectory() as folder:
        for ranks, rounds in SIZES:
            path, out = (Path(folder) / f"{ranks}x{rounds}{ending}" for ending in (".stash.json", ".html"))
            sizes = ["--ranks", str(ranks), "--rounds", str(rounds), "--make", str(path)]
            cost([sys.executable, "-m", "bench.scale", *sizes])
            took, size = command(path, out), f"{path.stat().st_size / 1e6:.2f}"
            rows.append([ranks, rounds, size, *took, f"{out.stat().st_size / 1e3:.0f}"])
            pages.append(out)
        rows = [[*row, seconds] for row, seconds in zip(rows, opened(pages), strict=True)]
        heads = ("ranks", "rounds", "artefact, MB", "`stash report`, s", "`stash show`, s", "report, kB", "opens, s")
        report(table(heads, rows))
        if wanted.drawn_by:
            heads = ("charts of a 16-rank report", "s", "kB", "needs scripts")
            print("", table(heads, drawn(Path(folder) / "16x30.stash.json")), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
