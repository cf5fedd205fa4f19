"""``stash show``, ``stash report`` and ``stash figures``: any saved artefact, read and shown."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core import parsers
from stash.core.errors import UnitError, UserError
from stash.core.printable import printable_line
from stash.core.units import counted
from stash.report.output import output_file, print_probe, print_profile, write_output
from stash.store.storing import store_option
from stash.ui.options import Options, argument, flag, json_flag, option, public_flag

if TYPE_CHECKING:
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.report.pages import ReadRun
    from stash.store.storing import FoundRun
    from stash.ui.charts.chart import Chart
    from stash.ui.page import Page


@dataclass(frozen=True, kw_only=True)
class ShowOptions(Options):
    """One call of ``stash show``."""

    file: str = argument(
        "FILE",
        "A *.stash.json file of `stash profile`, a *.host.json of `stash probe`, a *.plan.json, a *.spotlog.json of "
        "`stash spot run`; or a store's id.",
    )
    json: bool = json_flag(
        "Print the breakdown as JSON, for other programs; its keys are a contract (docs/format.md)."
    )
    explain: bool = flag("Say also what each word of a profile's report means.")
    as_seen: bool = flag("Leave what other work on the machine cost in the stalls of a profile, as they were seen.")
    redact: bool = flag("Leave out names of machines, paths and addresses.")
    output: Path | None = option("FILE", "With --redact: save what is left, to be passed on.", Path, "-o", "--output")
    store: str | None = store_option()


def show(options: ShowOptions) -> None:
    """Show where a step's time goes: every stall with its interval, what dominates, what to do next.

    Examples:

        stash show resnet18.stash.json

        stash show resnet18.stash.json --json | jq '.stalls[] | {name, seconds}'

        stash show resnet18.stash.json --redact -o shared.stash.json
    """
    from stash.analysis.disturbance import without_delays
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.plan.records import is_plan
    from stash.spot.spot_files import is_spot_log
    from stash.store.storing import found as run_of

    file, json, explain, redact, output = options.file, options.json, options.explain, options.redact, options.output
    made = "a plan" if is_plan(file) else "a log of a run" if is_spot_log(file) else None
    if made is not None:
        if redact or explain or options.as_seen:
            refused = "--redact" if redact else "--explain" if explain else "--as-seen"
            raise UserError(f"{refused} is about profiles, and {file} is {made}; leave it out")
        (_print_plan if made == "a plan" else _print_spot_log)(file, json)
        return
    if output is not None and not redact:
        raise UserError(f"--output {output} belongs to --redact: it saves what is left of a profile to be passed on")
    with no_garbage():
        run = run_of(file, options.store)
        found = _fit_to_share(run, output) if redact else run.artefact
        if explain and (json or isinstance(found, Probe)):
            raise UserError("--explain is about the report of a profile; type `stash show NAME.stash.json --explain`")
        if options.as_seen and isinstance(found, Probe):
            raise UserError("--as-seen is about the stalls of a profile; a probe has none")
        if isinstance(found, Profile):
            found = without_delays(found) if options.as_seen else found
            print_profile(found, json, source=Path(file), explain=explain)
        else:
            from stash.catalog.layers import load as load_catalog

            print_probe(found, load_catalog(), saved=Path(file), json=json)


def _print_plan(file: str, json: bool) -> None:
    """A saved plan as `stash recommend` printed it."""
    from stash.plan.page import document, page
    from stash.plan.records import load_plan
    from stash.report.output import printed
    from stash.spot.spot_files import is_fleet_plan

    if is_fleet_plan(Path(file)):
        _print_fleet_plan(Path(file), json)
        return
    plan = load_plan(file)
    printed(document(plan) if json else page(plan))


def _print_fleet_plan(file: Path, json: bool) -> None:
    """A saved plan as `stash spot plan` printed it."""
    from stash.report.output import printed
    from stash.spot.pages.fleet_plan import document, page
    from stash.spot.spot_files import read_plan

    plan = read_plan(file)
    printed(document(plan) if json else page(plan, file.name))


def _print_spot_log(file: str, json: bool) -> None:
    """A run's log as `stash spot run` ended."""
    from stash.report.output import printed
    from stash.spot.pages.run_report import document, page
    from stash.spot.spot_files import load_spot_log

    log = load_spot_log(file)
    printed(document(log) if json else page(log, Path(file).name))


def _fit_to_share(run: FoundRun, output: Path | None) -> Profile | Probe:
    """The artefact without names and paths, saved if there is a file to save it to."""
    from stash.core.artefact import save
    from stash.core.redaction import redacted
    from stash.report.output import output_file

    found = redacted(run.artefact)
    if output is not None:
        if str(output.resolve()) == run.place:
            raise UserError(
                f"--output {output} is the profile itself, which would lose its names; choose another file"
            )
        save(found, output_file(output, "", ""))
        print(printable_line(f"Saved {output}: no names of machines, no paths, no addresses."), file=sys.stderr)
    return found


@contextmanager
def no_garbage() -> Iterator[None]:
    """A large job's blocks are all needed to the end: looking for garbage among them would take half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


_STUDIES = (".yaml", ".yml")


def _files_argument() -> Any:
    return argument(
        "RUN...",
        "Files of `stash profile` or `stash probe`, plans, logs of `stash spot run`; of several profiles the first "
        "is compared with each other one. Or one study.yaml.",
        many=True,
    )  # fmt: skip


def _probe_option() -> Any:
    return option(
        "FILE", "A *.host.json file of the machines that were profiled, whose links the report then shows.", Path
    )


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """One call of ``stash report``."""

    files: tuple[str, ...] = _files_argument()
    output: Path | None = option(
        "FILE",
        "Where to write it; else a new file in this folder, named after the first one.",
        Path,
        "-o",
        "--output",
    )
    open: bool = flag("Open the report in a browser.")
    markdown: bool = flag("Print a summary for a pull request as GitHub's Markdown instead; -o FILE.md writes it.")
    format: str | None = option(
        "FORMAT", "perfetto: a trace of the stamped steps, for ui.perfetto.dev.", parsers.one_of(["perfetto"])
    )
    probe: Path | None = _probe_option()
    public: bool = public_flag()
    store: str | None = store_option()

    def check(self) -> None:
        if self.format is not None and (self.as_markdown or self.open or self.probe):
            raise UserError("--format perfetto writes a trace; leave out --markdown, --open and --probe")
        if self.as_markdown and self.open:
            raise UserError("--open is for a browser, which shows no Markdown; leave out one of the two")

    @property
    def as_markdown(self) -> bool:
        """Asked for by name, or by how the file ends."""
        return self.markdown or (self.output is not None and self.output.suffix == ".md")


def report(options: ReportOptions) -> None:
    """Write a report to forward: one HTML file that needs nothing beside it, with every chart's table.

    Examples:

        stash report train.stash.json

        stash report monday.stash.json today.stash.json -o week.html --open

        stash report train.stash.json --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    output, markdown = options.output, options.as_markdown
    if options.format is not None:
        _write_trace(options)
        return
    with no_garbage():
        target = None if markdown and output is None else output_file(output, _stem(options.files), ".html")
        page = read_page(options.files, options.probe, options.store, beside=(target or Path()).parent)
        if markdown:
            from stash.ui.markdown import render as render_markdown

            text = render_markdown(page)
        else:
            from stash.ui.html import render

            text = render(page)
    if target is None:
        print(text, end="")
        return
    write_output(target, text, new=output is None, public=options.public)
    print(printable_line(f"Wrote {target} ({len(text.encode()) / 1e3:.0f} kB)."))
    if options.open:
        _open(target)


def _write_trace(options: ReportOptions) -> None:
    from stash.report.trace import SUFFIX, render
    from stash.store.storing import profile_of

    if len(options.files) > 1:
        raise UserError("--format perfetto writes a trace of one profile; name one")
    target = output_file(options.output, _stem(options.files), SUFFIX)
    text = render(profile_of(options.files[0], options.store)[0])
    write_output(target, text, new=options.output is None, public=options.public)
    print(printable_line(f"Wrote {target} ({len(text.encode()) / 1e3:.0f} kB); open it in https://ui.perfetto.dev."))


def read_page(
    files: Sequence[str], probe: Path | None = None, store: str | None = None, beside: Path = Path()
) -> Page:
    """The report's page of these files, to be written into the folder ``beside``; raises UserError."""
    from stash.core.artefact import load_probe
    from stash.core.records.profile import Profile
    from stash.plan.records import is_plan
    from stash.spot.spot_files import is_spot_log
    from stash.store.storing import found as run_of

    if any(name.endswith(_STUDIES) for name in files):
        return _page_of_study(files, probe, beside)
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{twice} is given twice; name each file once")
    made = [name for name in files if is_plan(name) or is_spot_log(name)]
    found = [None if name in made else run_of(name, store).artefact for name in files]
    links = None if probe is None else load_probe(probe)
    names = _short_names(files)
    parts, runs = [], []
    for artefact, file, name in zip(found, files, names, strict=True):
        if isinstance(artefact, Profile):
            run = _read_run(artefact, file, name, links, str(probe))
            runs.append(run)
            parts.append(_page_of_profile(run, Path(file).name))
        elif artefact is None:
            parts.append(_page_of_plan(file) if is_plan(file) else _page_of_spot_log(file))
        else:
            parts.append(_page_of_probe(artefact, Path(file).name))
    if links is not None and not runs:
        raise UserError("--probe adds links to a profile, and none is given; leave it out")
    if len(parts) == 1:
        return parts[0]
    from stash.report.pages import page_of_runs

    return page_of_runs(runs, parts)


def _page_of_study(files: Sequence[str], probe: Path | None, beside: Path) -> Page:
    if len(files) > 1 or probe is not None:
        raise UserError(f"a report of a study is of nothing else; type `stash report {files[0]}`")
    from stash.study.command import page

    return page(Path(files[0]), beside)


def _read_run(profile: Profile, file: str, name: str, links: Probe | None, probe: str) -> ReadRun:
    from stash.analysis.attribution import attribute
    from stash.core.artefact import check_of_hosts, with_links
    from stash.report.pages import ReadRun

    if links is not None:
        check_of_hosts(links, probe, profile, file)
        profile = with_links(profile, links)
    return ReadRun(name, profile, attribute(profile, file))


def _page_of_profile(run: ReadRun, file: str) -> Page:
    from stash.advice.verdict import verdict
    from stash.report.pages import page_of_profile, probe_of

    probed, reading = probe_of(run.profile), None
    if probed is not None:
        from stash.analysis.findings.probe_reading import read
        from stash.catalog.layers import load as load_catalog

        reading = read(probed, load_catalog())
    return page_of_profile(run, verdict(run.breakdown, run.profile), file, reading)


def _page_of_plan(file: str) -> Page:
    from stash.plan.page import page
    from stash.plan.records import load_plan
    from stash.spot.spot_files import is_fleet_plan, read_plan

    if is_fleet_plan(Path(file)):
        from stash.spot.pages.fleet_plan import page as page_of_plan

        return page_of_plan(read_plan(Path(file)), Path(file).name)
    return page(load_plan(file))


def _page_of_spot_log(file: str) -> Page:
    from stash.spot.pages.run_report import page
    from stash.spot.spot_files import load_spot_log

    return page(load_spot_log(file), Path(file).name)


def _page_of_probe(probe: Probe, file: str) -> Page:
    from stash.analysis.findings.probe_reading import read
    from stash.catalog.layers import load as load_catalog
    from stash.report.pages import page_of_probe

    return page_of_probe(probe, read(probe, load_catalog()), file)


def _stem(files: Sequence[str]) -> str:
    return _short(files[0])


def _short_names(files: Sequence[str]) -> list[str]:
    """Names of files without their folders and endings, if that still tells them apart."""
    short = [_short(name) for name in files]
    return short if len(set(short)) == len(short) else list(files)


def _short(name: str) -> str:
    from stash.core.artefact import PROBE_SUFFIX
    from stash.core.records.base import SUFFIX

    return Path(name).name.removesuffix(SUFFIX).removesuffix(PROBE_SUFFIX).removesuffix(".json") or "report"


def _open(target: Path) -> None:
    import sys
    import webbrowser

    if not webbrowser.open(target.resolve().as_uri()):
        print(printable_line(f"no browser was found; open {target} in one"), file=sys.stderr)


FORMATS = ("png", "svg", "pdf")
_NARROWEST, _WIDEST = 60.0, 1000.0


def _formats(text: str) -> tuple[str, ...]:
    wanted = [part.strip().lower().removeprefix(".") for part in text.split(",") if part.strip()]
    if not wanted or any(part not in FORMATS for part in wanted):
        raise UnitError(f"the formats are {', '.join(FORMATS)}, like pdf,svg")
    return tuple(dict.fromkeys(wanted))


def _width(text: str) -> float:
    try:
        return parsers.number_between(_NARROWEST, _WIDEST)(text)
    except UnitError:
        raise UnitError(f"a figure is {_NARROWEST:g} to {_WIDEST:g} mm wide, like 85") from None


@dataclass(frozen=True, kw_only=True)
class FiguresOptions(Options):
    """One call of ``stash figures``."""

    files: tuple[str, ...] = _files_argument()
    format: tuple[str, ...] = option(
        "FORMATS", f"What to write, separated by commas: {', '.join(FORMATS)}.", _formats, default="pdf"
    )
    folder: Path = option(
        "DIR", "The folder to write them to; it is made if need be.", Path, "-o", "--output", default="figures"
    )
    width: float = option(
        "MM", "Width of each, in millimetres; a column of most papers is 85, a page 170.", _width, default="170"
    )
    probe: Path | None = _probe_option()
    public: bool = public_flag()
    store: str | None = store_option()


def figures(options: FiguresOptions) -> None:
    """Write every chart of a report, ready for paper: fonts embedded, colours that the colour-blind tell apart.

    Examples:

        stash figures train.stash.json --format pdf,svg -o figures/

        stash figures train.stash.json --format png --width 85
    """
    files, folder = options.files, options.folder
    page = read_page(files, options.probe, options.store)
    charts = _charts(page)
    if not charts:
        raise UserError(f"there is nothing to draw of {', '.join(files)} yet; measure first, then ask again")
    _make(folder)
    from stash.ui.charts.chart_files import content

    written = []
    for stem, chart in charts:
        for ending in options.format:
            target = folder / f"{stem}.{ending}"
            write_output(target, content(chart, ending, options.width), public=options.public)
            written.append(target)
    print(
        printable_line(
            f"Wrote {counted(len(written), 'file')} to {folder}: {', '.join(path.name for path in written)}."
        )
    )


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
