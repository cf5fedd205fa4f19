"""What becomes of a page: printed as text or JSON, written by its ending; and of what was measured: saved.

Computes nothing: ``analysis`` reads, ``ui`` makes the text. Where answers go is checked in ``core.output_files``.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stash.core.errors import ArtefactError, StashError, UserError
from stash.core.interrupts import postpone_requests
from stash.core.printable import print_written, strict_json
from stash.store.storing import keep_copy

if TYPE_CHECKING:
    from stash.advice.rental import RentalVerdict
    from stash.analysis.findings.probe_reading import Reading
    from stash.catalog.offers import Catalog
    from stash.core.records.host import Probe
    from stash.core.records.profile import Profile
    from stash.predict.passes import Base
    from stash.store.store import Store
    from stash.ui.page import Page


PICTURES = (".png", ".svg", ".pdf")
WIDTH_MM = 170
"""Of a page."""
_MAX_LINES = 40
"""Of a profile's ``repr``."""


def show_then_save(
    artefact: Profile | Probe,
    target: Path | None,
    show: Callable[[], None],
    json: bool = False,
    new: bool = False,
    copies: Store | None = None,
) -> None:
    """``show`` it first: should saving fail, the measured minute is not lost. Raises ArtefactError.

    Where standard output is ``json``, nothing else is printed there. A ``new`` file takes no name that another has.
    A store for ``copies`` gets one, whether or not saving fails.
    """
    saved = None
    try:
        show()
    finally:
        try:
            with postpone_requests():
                saved = None if target is None else _save_artefact(artefact, target, new)
            if saved is not None:
                print(end="" if json else "\n")
                print_written(
                    saved, json, f"; show it again with `stash show {shlex.quote(str(saved))}`"
                )
        finally:
            keep_copy(artefact, copies, saved)


def _save_artefact(artefact: Profile | Probe, target: Path, new: bool) -> Path:
    """Where it was saved; raises ArtefactError, which says where else what was measured is."""
    from stash.core.artefact import save, save_new

    try:
        if new:
            return save_new(artefact, target)
        save(artefact, target)
    except ArtefactError as error:
        elsewhere = _saved_elsewhere(artefact, target.name)
        if elsewhere is None:
            raise
        raise ArtefactError(f"{error}. What was measured is in {elsewhere}") from error
    return target


def _saved_elsewhere(artefact: Profile | Probe, name: str) -> Path | None:
    """The place, where there is one: the current folder, or the temporary one."""
    from stash.core.artefact import save_new

    for folder in (Path.cwd, tempfile.gettempdir):
        with suppress(ArtefactError, OSError):  # the current folder may be gone too
            return save_new(artefact, Path(folder()) / name)
    return None


def print_profile(
    profile: Profile, json: bool = False, source: Path | None = None, explain: bool = False
) -> None:
    """Print a profile's breakdown, as a report or as the JSON of the contract; ``source`` is the file it is from.

    With ``explain`` the report ends with what its words mean.
    """
    from stash.advice.verdict import verdict
    from stash.analysis.attribution import attribute

    breakdown = attribute(profile, None if source is None else str(source))
    advice = verdict(breakdown, profile)
    if json:
        from stash.report.profile_contract import document

        print(strict_json(document(breakdown, advice, profile)))
        return
    from stash.report.profile_page import page

    print_output(page(breakdown, advice, profile, explain))


def profile_text(profile: Profile) -> str:
    """The top of a profile's report in at most 40 lines of plain text; else the sentence why there is none."""
    from stash.advice.verdict import verdict
    from stash.analysis.attribution import attribute
    from stash.core.printable import printable_line
    from stash.report.profile_page import how_measured, page
    from stash.ui.terminal import render

    try:
        breakdown = attribute(profile)
    except StashError as error:
        return printable_line(f"{profile.workload.name}: {error}")
    shown = page(breakdown, verdict(breakdown, profile), profile)
    top = replace(shown, chapters=(), footer=how_measured(breakdown, profile))
    lines = render(top).strip("\n").splitlines()
    return "\n".join([*lines[: _MAX_LINES - 1], "..."] if len(lines) > _MAX_LINES else lines)


def print_probe(
    found: Probe,
    known: Catalog,
    against: str | None = None,
    saved: Path | None = None,
    json: bool = False,
    past: Sequence[Probe] = (),
    base: Base | None = None,
) -> None:
    """Print a probe next to what its type should have, as a report or as the JSON of the contract.

    ``past``: probes of which those of machines like these say what is usual; ``base``: of the job's profile.
    """
    from stash.report.probe_page import document, page

    reading, verdict = judged_probe(found, known, against, past, base)
    name = None if saved is None else shlex.quote(str(saved))
    print_output(document(found, reading, verdict) if json else page(found, reading, name, verdict))


def judged_probe(
    found: Probe,
    known: Catalog,
    against: str | None = None,
    past: Sequence[Probe] = (),
    base: Base | None = None,
) -> tuple[Reading, RentalVerdict]:
    """The reading of a probe, and what to do with its machines."""
    from stash.advice.rental import judge_rental
    from stash.analysis.findings.probe_reading import read_probe
    from stash.predict.shortfalls import losses, shares_of

    reading = read_probe(found, known, against, past)
    lost = None
    if base is not None:
        work = base.profile.workload
        on_gpu = base.target.device is not None
        lost = losses(base, shares_of(found.hosts, reading.standings, work, on_gpu))
    host = found.hosts[0]
    return reading, judge_rental(
        found, reading, lost, known.newest_on_demand(against or host.instance)
    )


def print_output(shown: Page | dict[str, Any], markdown: bool = False) -> None:
    """Print a page as text for this terminal or as Markdown, or a document as JSON."""
    if isinstance(shown, dict):
        print(strict_json(shown))
    elif markdown:
        print(file_of(shown, ".md"), end="")
    else:
        from stash.ui.terminal import print_page

        print_page(shown)


def file_of(page: Page, ending: str) -> str | bytes:
    """The content of a file with that ending: the whole page, or its first chart as a picture.

    Raises UserError for another ending, where there is nothing to draw, and without vl-convert.
    """
    if ending == ".html":
        from stash.ui.html import render

        return render(page)
    if ending == ".md":
        from stash.ui.markdown import render as render_markdown

        return render_markdown(page)
    if ending not in PICTURES:
        raise UserError(f"--output *{ending}: pictures end in {', '.join((*PICTURES, '.html'))}")
    from stash.ui.charts.chart import Blank
    from stash.ui.charts.chart_files import render_chart

    drawn = next(chart for chapter in page.chapters for chart in chapter.charts)
    if isinstance(drawn, Blank):
        raise UserError(f"--output *{ending}: there is nothing to draw, because {drawn.why}")
    return render_chart(drawn, ending.removeprefix("."), WIDTH_MM)
