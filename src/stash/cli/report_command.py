"""``stash report``: saved artefacts as a page to forward, or each of its charts as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.garbage import no_garbage
from stash.core.output_files import is_same, output_file, write_output
from stash.core.printable import print_written
from stash.core.units import format_count
from stash.report.output import PICTURES, WIDTH_MM, file_of
from stash.store.storing import store_option
from stash.ui.options import Options, argument, option

if TYPE_CHECKING:
    from stash.analysis.findings.probe_reading import Reading
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.report.pages import ReadRun
    from stash.ui.page import Page

_STUDIES = (".yaml", ".yml")
_PAGES, _DRAWN = ("html", "md"), tuple(ending.removeprefix(".") for ending in PICTURES)
FORMATS = (*_PAGES, *_DRAWN)
_FOLDER = "figures"
_NARROWEST, _WIDEST = 60.0, 1000.0


def _formats(text: str) -> tuple[str, ...]:
    wanted = [part.removeprefix(".") for part in parsers.names(text.lower())]
    if not wanted or any(part not in FORMATS for part in wanted):
        raise UnitError(f"the formats are {', '.join(FORMATS)}; several are written like pdf,svg")
    return tuple(dict.fromkeys(wanted))


def _width(text: str) -> float:
    try:
        return parsers.number_between(_NARROWEST, _WIDEST)(text)
    except UnitError:
        raise UnitError(f"a figure is {_NARROWEST:g} to {_WIDEST:g} mm wide, like 85") from None


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """One call of ``stash report``."""

    files: tuple[str, ...] = argument(
        "RUN...",
        "Files that Stash wrote, or one study.yaml. The first of several profiles is compared with each other one.",
        many=True,
    )
    format: tuple[str, ...] | None = option(
        "FORMATS",
        f"Write {', '.join(FORMATS)}, or several like html,svg. The default follows --output's ending, else html. "
        "Every chart becomes a picture.",
        _formats,
    )
    output: Path | None = option(
        "PATH",
        "Write to this file (default: named after the first RUN). "
        f"Pictures and several formats go to this folder (default {_FOLDER}).",
        Path,
        "-o",
        "--output",
    )
    width: float | None = option(
        "MM",
        f"Set pictures' width (default {WIDTH_MM}, a page; 85 is a column).",
        _width,
    )
    probe: Path | None = option(
        "FILE", "Include the links of this *.host.json of the profiled machines.", Path
    )
    store: str | None = store_option()

    def check(self) -> None:
        ending = "" if self.output is None else self.output.suffix.lower()
        if ending in PICTURES:
            raise UserError(
                f"--output {self.output}: every chart is a picture of its own; say `--format "
                f"{ending.removeprefix('.')} -o FOLDER`"
            )
        if ending in (".json", ".jsonl") and not self.has_many_files:
            raise UserError(
                f"--output {self.output}: a page is no JSON, and what was measured ends so; name a file that ends in "
                ".html or .md"
            )
        if (
            self.output is not None
            and not self.has_many_files
            and any(is_same(self.output, each) for each in self.files)
        ):
            raise UserError(
                f"--output {self.output} is what the report is made of; choose another file"
            )
        if self.has_many_files and ending in (".html", ".md"):
            raise UserError(
                f"--output {self.output}: several files are written; name a folder, like -o {_FOLDER}"
            )
        if self.width is not None and not self.drawn:
            raise UserError(f"--width is of pictures; say which, like --format {_DRAWN[-1]}")

    @property
    def formats(self) -> tuple[str, ...]:
        """Asked for by name, or by how the file ends."""
        if self.format is not None:
            return self.format
        return ("md",) if self.output is not None and self.output.suffix == ".md" else ("html",)

    @property
    def drawn(self) -> tuple[str, ...]:
        """Formats of pictures."""
        return tuple(each for each in self.formats if each in _DRAWN)

    @property
    def has_many_files(self) -> bool:
        """Whether several files may be written."""
        return bool(self.drawn) or len(self.formats) > 1


def report(options: ReportOptions) -> None:
    """Write a report to share: one HTML file, Markdown or pictures.

    Examples:
      stash report train.stash.json
      stash report monday.stash.json today.stash.json -o week.html
      stash report train.stash.json --format pdf,svg --width 85 -o figures/
      stash report train.stash.json --format md >> "$GITHUB_STEP_SUMMARY"
    """
    with no_garbage():
        _write_folder(options) if options.has_many_files else _write_page(options)


def _write_page(options: ReportOptions) -> None:
    """One file, or Markdown that is printed."""
    (kind,), output = options.formats, options.output
    printed = kind == "md" and output is None
    target = None if printed else output_file(output, _short(options.files[0]), f".{kind}")
    page = read_page(options.files, options.probe, options.store, (target or Path()).parent)
    if target is None:
        print(file_of(page, ".md"), end="")
        return
    write_output(target, file_of(page, f".{kind}"), new=output is None)
    print_written(target, False, f" ({target.stat().st_size / 1e3:.0f} kB)")


def _write_folder(options: ReportOptions) -> None:
    """A file of every chart and format, and pages next to them."""
    from stash.ui.charts.chart_files import render_chart

    folder = options.output or Path(_FOLDER)
    stem = _short(options.files[0])
    page = read_page(options.files, options.probe, options.store, folder)
    charts = [(chart.name, chart) for chart in page.charts]
    for number, part in enumerate(page.parts, 1):  # those of several runs, as these were given
        charts += [(f"run{number}-{chart.name}", chart) for chart in part.charts]
    if options.drawn and not charts:
        raise UserError(
            f"there is nothing to draw of {', '.join(options.files)} yet; measure first, then ask again"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(
            f"--output {folder} is a file; name a folder, like --output figures"
        ) from None
    except OSError as error:
        raise UserError(
            f"--output {folder}: {error.strerror or error}; choose another folder"
        ) from None
    written = []
    for kind in options.formats:
        pages = [(stem, file_of(page, f".{kind}"))] if kind in _PAGES else []
        pictures = (
            (name, render_chart(chart, kind, options.width or WIDTH_MM)) for name, chart in charts
        )
        for name, made in pages or pictures:
            target = folder / f"{name}.{kind}"
            write_output(target, made)
            written.append(target)
    names = ", ".join(path.name for path in written)
    print_written(format_count(len(written), "file"), False, f" to {folder}: {names}")


def read_page(
    files: Sequence[str], probe: Path | None = None, store: str | None = None, folder: Path = Path()
) -> Page:
    """The report's page of these files, to be written into ``folder``; raises UserError."""
    from stash.cli.saved_files import SavedFile, saved_file
    from stash.core.artefact import load_probe
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.report.pages import page_of_probe, page_of_runs

    if any(name.endswith(_STUDIES) for name in files):
        if len(files) > 1 or probe is not None:
            raise UserError(
                f"a report of a study is of nothing else; type `stash report {files[0]}`"
            )
        from stash.study.study_run import page

        return page(Path(files[0]), folder)
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each file once")
    found = [saved_file(name, Path(name).name, store) for name in files]
    links = None if probe is None else load_probe(probe)
    short = [_short(name) for name in files]
    # without folders and endings, if they still differ
    names = short if len(set(short)) == len(short) else files
    parts = []
    runs = []
    for saved, file, name in zip(found, files, names, strict=True):
        if isinstance(saved, SavedFile):
            parts.append(saved.page())
        elif isinstance(saved.artefact, Profile):
            run = _read_run(saved.artefact, file, name, links, str(probe))
            runs.append(run)
            parts.append(_page_of_profile(run, Path(file).name))
        elif isinstance(saved.artefact, Probe):
            parts.append(page_of_probe(saved.artefact, _reading(saved.artefact), Path(file).name))
    if links is not None and not runs:
        raise UserError("--probe adds links to a profile, and none is given; leave it out")
    return parts[0] if len(parts) == 1 else page_of_runs(runs, parts)


def _read_run(profile: Profile, file: str, name: str, links: Probe | None, probe: str) -> ReadRun:
    from stash.analysis.attribution import attribute
    from stash.core.artefact import add_links, check_probed
    from stash.report.pages import ReadRun

    if links is not None:
        hosts = sorted({host.hostname for host in profile.hosts})
        what = (
            f"and {file} of {', '.join(hosts)}: give the probe of the machines that were profiled"
        )
        check_probed(links, probe, hosts, what)
        profile = add_links(profile, links)
    return ReadRun(name, profile, attribute(profile, file))


def _page_of_profile(run: ReadRun, file: str) -> Page:
    from stash.advice.verdict import verdict
    from stash.report.pages import page_of_profile, probe_of

    probe = probe_of(run.profile)
    reading = None if probe is None else _reading(probe)
    return page_of_profile(run, verdict(run.breakdown, run.profile), file, reading)


def _reading(probe: Probe) -> Reading:
    from stash.analysis.findings.probe_reading import read_probe
    from stash.catalog.layers import load as load_catalog

    return read_probe(probe, load_catalog())


def _short(name: str) -> str:
    from stash.core.artefact import PROBE_SUFFIX
    from stash.core.records.base import SUFFIX

    return (
        Path(name).name.removesuffix(SUFFIX).removesuffix(PROBE_SUFFIX).removesuffix(".json")
        or "report"
    )
