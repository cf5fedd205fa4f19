"""What a report costs: seconds from the command to the file, its size, and how long a browser takes to show it.

Against ranks and rounds, on profiles made up by ``bench.scale``. With ``--drawn-by`` also what drawing as many charts
takes in other ways: vl-convert's Vega-Lite, as SVG and as scripts in the page (docs/decisions/0015).
Seconds are of processor time, since a report waits for nothing; how busy the machine is shows in them all the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.machine import cost, machine
from bench.table import table
from stash.cli.show_command import read_page
from stash.ui.charts.svg import svg
from tests.support.chromium import CHROMIUM, Chromium

SIZES = ((2, 10), (16, 10), (16, 30), (16, 100), (128, 30), (1024, 30))
"""Ranks and rounds."""
REPEATED = 3
WIDTHS = (860, 350)
"""Pixels, at which a report draws every chart."""


def command(path: Path, out: Path) -> tuple[float, float]:
    """Median seconds of processor time of the command, and of `stash show` for the same profile."""
    stash = [sys.executable, "-m", "stash"]
    report = [cost([*stash, "report", str(path), "-o", str(out)])[1] for _ in range(REPEATED)]
    shown = [cost([*stash, "show", str(path), "--json"])[1] for _ in range(REPEATED)]
    return median(report), median(shown)


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
    charts = read_page([str(path)]).charts
    began = time.process_time()
    own = sum(len(svg(chart, width)) for chart in charts for width in WIDTHS)
    rows = [["Stash's own SVG, two widths", f"{time.process_time() - began:.3f}", f"{own / 1e3:.0f}", "no"]]

    import vl_convert

    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "width": WIDTHS[0],
        "data": {"values": [{"round": i % 30, "seconds": 0.1 + i % 7 / 100, "rung": i % 7} for i in range(210)]},
        "mark": "point",
        "encoding": {
            "x": {"field": "round", "type": "quantitative"},
            "y": {"field": "seconds", "type": "quantitative"},
            "color": {"field": "rung", "type": "nominal"},
        },
    }
    began = time.process_time()
    first = len(vl_convert.vegalite_to_svg(spec))
    once = time.process_time() - began
    others = sum(len(vl_convert.vegalite_to_svg({**spec, "width": width})) for _ in charts[1:] for width in WIDTHS)
    whole = time.process_time() - began
    rows.append([f"Vega-Lite to SVG (the first {once:.2f} s)", f"{whole:.3f}", f"{(first + others) / 1e3:.0f}", "no"])
    began = time.process_time()
    page = vl_convert.vegalite_to_html(spec, bundle=True)
    rows.append(
        ["Vega-Lite's scripts in the page", f"{time.process_time() - began:.3f}", f"{len(page) / 1e3:.0f}", "yes"]
    )
    began = time.process_time()
    import altair

    assert altair.Chart is not None
    rows.append(["importing altair, which writes such charts", f"{time.process_time() - began:.3f}", "0", ""])
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("--drawn-by", action="store_true", help="also other ways to draw the charts")
    wanted = parser.parse_args()
    rows, pages = [], []
    with tempfile.TemporaryDirectory() as folder:
        for ranks, rounds in SIZES:
            path, out = Path(folder) / f"{ranks}x{rounds}.stash.json", Path(folder) / f"{ranks}x{rounds}.html"
            made = [
                sys.executable,
                "-m",
                "bench.scale",
                "--ranks",
                str(ranks),
                "--rounds",
                str(rounds),
                "--make",
                str(path),
            ]
            cost(made)
            spent, shown = command(path, out)
            pages.append(out)
            rows.append([f"{ranks}", f"{rounds}", f"{path.stat().st_size / 1e6:.2f}", f"{spent:.2f}", f"{shown:.2f}",
                         f"{out.stat().st_size / 1e3:.0f}"])  # fmt: skip
        rows = [[*row, time_to_open] for row, time_to_open in zip(rows, opened(pages), strict=True)]
        heads = ("ranks", "rounds", "artefact, MB", "`stash report`, s", "`stash show`, s", "report, kB", "opens, s")
        print(machine(), table(heads, rows), sep="\n\n")
        if wanted.drawn_by:
            heads = ("charts of a 16-rank report", "s", "kB", "needs scripts")
            print("", table(heads, drawn(Path(folder) / "16x30.stash.json")), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
