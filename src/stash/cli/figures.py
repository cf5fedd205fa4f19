"""``stash figures``: every chart of a report as a file for a paper or a slide, without a browser.

Parses, loads, writes: the charts come from ``stash.show.report``, their formats from ``stash.show.charts.files``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.base.words.counting import counted
from stash.cli.options import PublicOption, option
from stash.cli.output import write_output
from stash.cli.report import FILES_HELP, PROBE_HELP, read_page
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.show.charts.chart import Chart
    from stash.show.report.page import Page

FORMATS = ("png", "svg", "pdf")
FORMAT_HELP = f"What to write, separated by commas: {', '.join(FORMATS)}."
FOLDER_HELP = "The folder to write them to; it is made if need be."
WIDTH_HELP = "Width of each, in millimetres; a column of most papers is 85, a page 170."
_NARROWEST, _WIDEST = 60.0, 1000.0


def figures(
    files: Annotated[list[str], typer.Argument(metavar="RUN...", help=FILES_HELP, show_default=False)],
    formats: Annotated[str, option("FORMATS", FORMAT_HELP, "--format")] = "pdf",
    folder: Annotated[Path, option("DIR", FOLDER_HELP, "-o", "--output")] = Path("figures"),
    width: Annotated[float, option("MM", WIDTH_HELP, "--width")] = 170.0,
    probe: Annotated[Path | None, option("FILE", PROBE_HELP, "--probe")] = None,
    public: PublicOption = False,
    store: StoreOption = None,
) -> None:
    """Write every chart of a report, ready for paper: fonts embedded, colours that the colour-blind tell apart.

    Examples:

        stash figures train.stash.json --format pdf,svg -o figures/

        stash figures train.stash.json --format png --width 85
    """
    wanted = _formats(formats)
    if not _NARROWEST <= width <= _WIDEST:
        raise UserError(f"--width {width:g}: a figure is {_NARROWEST:g} to {_WIDEST:g} mm wide, like --width 85")
    page = read_page(files, probe, store)
    charts = _charts(page)
    if not charts:
        raise UserError(f"there is nothing to draw of {', '.join(files)} yet; measure first, then ask again")
    _make(folder)
    from stash.show.charts.files import content

    written = []
    for stem, chart in charts:
        for ending in wanted:
            target = folder / f"{stem}.{ending}"
            write_output(target, content(chart, ending, width), public=public)
            written.append(target)
    print(
        printable_line(
            f"Wrote {counted(len(written), 'file')} to {folder}: {', '.join(path.name for path in written)}."
        )
    )


def _formats(text: str) -> list[str]:
    wanted = [part.strip().lower().removeprefix(".") for part in text.split(",") if part.strip()]
    unknown = [part for part in wanted if part not in FORMATS]
    if unknown or not wanted:
        raise UserError(f"--format {text}: the formats are {', '.join(FORMATS)}, like --format pdf,svg")
    return list(dict.fromkeys(wanted))


def _charts(page: Page) -> list[tuple[str, Chart]]:
    """Charts and the stems of their files; those of several runs are numbered as these were given."""
    found = [(chart.name, chart) for chart in page.charts]
    for number, part in enumerate(page.parts, 1):
        found += [(f"run{number}-{chart.name}", chart) for chart in part.charts]
    return found


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"--output {folder} is a file; name a folder, like --output figures") from None
    except OSError as error:
        raise UserError(f"--output {folder}: {error.strerror or error}; choose another folder") from None
