"""The pictures of the documentation: every chart of a report, and the report itself as a browser shows it.

Made from a profile that is kept beside them, by default that of `make demo`. Drawings carry no font, to stay small;
`stash report --format svg` writes the same ones with theirs. Pictures of the browser need Debian's Chromium.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from bench.machine import ROOT
from stash.cli.report_command import read_page
from stash.ui.charts.svg import svg
from stash.ui.html import render
from tests.support.chromium import CHROMIUM, Chromium

FOLDER = ROOT / "docs" / "pictures"
DEMO = FOLDER / "squeezenet1_0.stash.json"
WIDTH = 860
SHOTS = {"report-light": (1000, 1180, False), "report-dark": (1000, 1180, True), "report-phone": (400, 1180, False)}
"""Width and height in pixels, and whether it is night."""
_COLOURS = 128


def draw(profile: Path) -> None:
    """Every chart as SVG."""
    for chart in read_page([str(profile)]).charts:
        (FOLDER / f"{chart.name}.svg").write_text(svg(chart, WIDTH, paper=True), encoding="utf-8")


def photograph(profile: Path) -> None:
    """The top of the report in a window, by day, by night and on a phone."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder) / "report.html"
        page.write_text(render(read_page([str(profile)])), encoding="utf-8")
        browser = Chromium(Path(folder) / "browser")
        for name, (width, height, dark) in SHOTS.items():
            browser.open(page, width, height, dark)
            picture = Image.open(io.BytesIO(base64.b64decode(browser.screenshot())))
            few = picture.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
            few.save(FOLDER / f"{name}.png", optimize=True)
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pictures", description=__doc__)
    parser.add_argument("profile", type=Path, nargs="?", default=DEMO)
    wanted = parser.parse_args()
    draw(wanted.profile)
    if CHROMIUM is None:
        print("Chromium is not installed: no picture of the report was taken", file=sys.stderr)
        return 1
    photograph(wanted.profile)
    return 0


if __name__ == "__main__":
    sys.exit(main())
