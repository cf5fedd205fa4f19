"""``stash report``: profiles and probes as one HTML file to forward, or as Markdown for a pull request.

Parses, loads, writes: what it says comes from ``stash.derive`` and ``stash.show.report``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stash.base.errors import UserError
from stash.base.printable import printable_line
from stash.cli.options import PublicOption, flag, option
from stash.cli.output import output_file, write_output
from stash.cli.show import no_garbage
from stash.cli.storing import StoreOption

if TYPE_CHECKING:
    from stash.base.records import Probe, Profile
    from stash.show.report.of_profile import ReadRun
    from stash.show.report.page import Page

FILES_HELP = (
    "Files of `stash profile` or `stash probe`, plans, logs of `stash spot run`; of several profiles the first is "
    "compared with each other one. Or one study.yaml."
)
OUTPUT_HELP = "Where to write it; else a new file in this folder, named after the first one."
OPEN_HELP = "Open the report in a browser."
_STUDIES = (".yaml", ".yml")
MARKDOWN_HELP = "Print a summary for a pull request as GitHub's Markdown instead (with -o: write it)."
PROBE_HELP = "A *.host.json file of the machines that were profiled, whose links the report then shows."


def report(
    files: Annotated[list[str], typer.Argument(metavar="RUN...", help=FILES_HELP, show_default=False)],
    output: Annotated[Path | None, option("FILE", OUTPUT_HELP, "-o", "--output")] = None,
    open_it: Annotated[bool, flag("--open", OPEN_HELP)] = False,
    markdown: Annotated[bool, flag("--markdown", MARKDOWN_HELP)] = False,
    probe: Annotated[Path | None, option("FILE", PROBE_HELP, "--probe")] = None,
    public: PublicOption = False,
    store: StoreOption = None,
) -> None:
    """Write a report to forward: one HTML file that needs nothing beside it, with every chart's table.

    Examples:

        stash report train.stash.json

        stash report monday.stash.json today.stash.json -o week.html --open

        stash report train.stash.json --markdown >> "$GITHUB_STEP_SUMMARY"
    """
    if markdown and open_it:
        raise UserError("--open is for a browser, which shows no Markdown; leave out one of the two")
    with no_garbage():
        target = None if markdown and output is None else output_file(output, _stem(files), ".html")
        page = read_page(files, probe, store, beside=(target or Path()).parent)
        if markdown:
            from stash.show.report.markdown import render as render_markdown

            text = render_markdown(page)
        else:
            from stash.show.report.html import render

            text = render(page)
    if target is None:
        print(text, end="")
        return
    write_output(target, text, new=output is None, public=public)
    print(printable_line(f"Wrote {target} ({len(text.encode()) / 1e3:.0f} kB)."))
    if open_it:
        _open(target)


def read_page(
    files: Sequence[str], probe: Path | None = None, store: str | None = None, beside: Path = Path()
) -> Page:
    """The report's page of these files, to be written into the folder ``beside``; raises UserError."""
    from stash.base.records import Profile
    from stash.cli.runs import found as run_of
    from stash.keep.artefact import load_probe
    from stash.keep.plans import is_plan
    from stash.keep.spotlogs import is_spot_log

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
    from stash.show.report.of_runs import page as page_of_runs

    return page_of_runs(runs, parts)


def _page_of_study(files: Sequence[str], probe: Path | None, beside: Path) -> Page:
    if len(files) > 1 or probe is not None:
        raise UserError(f"a report of a study is of nothing else; type `stash report {files[0]}`")
    from stash.cli.characterize import page

    return page(Path(files[0]), beside)


def _read_run(profile: Profile, file: str, name: str, links: Probe | None, probe: str) -> ReadRun:
    from stash.derive.stalls import attribute
    from stash.keep.probed import check_of_hosts, with_links
    from stash.show.report.of_profile import ReadRun

    if links is not None:
        check_of_hosts(links, probe, profile, file)
        profile = with_links(profile, links)
    return ReadRun(name, profile, attribute(profile, file))


def _page_of_profile(run: ReadRun, file: str) -> Page:
    from stash.derive.advise import verdict
    from stash.show.report.hosts import probe_of
    from stash.show.report.of_profile import page

    probed, reading = probe_of(run.profile), None
    if probed is not None:
        from stash.derive.findings import read
        from stash.keep.catalog import load as load_catalog

        reading = read(probed, load_catalog())
    return page(run, verdict(run.breakdown, run.profile), file, reading)


def _page_of_plan(file: str) -> Page:
    from stash.keep.fleets import is_fleet_plan, read_plan
    from stash.keep.plans import load_plan
    from stash.show.plan.page import page

    if is_fleet_plan(Path(file)):
        from stash.show.spot.page import page_of_plan

        return page_of_plan(read_plan(Path(file)), Path(file).name)
    return page(load_plan(file))


def _page_of_spot_log(file: str) -> Page:
    from stash.keep.spotlogs import load_spot_log
    from stash.show.spot.page import page_of_log

    return page_of_log(load_spot_log(file), Path(file).name)


def _page_of_probe(probe: Probe, file: str) -> Page:
    from stash.derive.findings import read
    from stash.keep.catalog import load as load_catalog
    from stash.show.report.of_probe import page

    return page(probe, read(probe, load_catalog()), file)


def _stem(files: Sequence[str]) -> str:
    return _short(files[0])


def _short_names(files: Sequence[str]) -> list[str]:
    """Names of files without their folders and endings, if that still tells them apart."""
    short = [_short(name) for name in files]
    return short if len(set(short)) == len(short) else list(files)


def _short(name: str) -> str:
    from stash.base.records import SUFFIX
    from stash.keep.artefact import PROBE_SUFFIX

    return Path(name).name.removesuffix(SUFFIX).removesuffix(PROBE_SUFFIX).removesuffix(".json") or "report"


def _open(target: Path) -> None:
    import sys
    import webbrowser

    if not webbrowser.open(target.resolve().as_uri()):
        print(printable_line(f"no browser was found; open {target} in one"), file=sys.stderr)
