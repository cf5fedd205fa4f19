"""A study from its file to its results: read, shown as it stands, run, and read again; what commands do with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import typer

from stash.api import attribute, load_catalog, open_store, print_answer
from stash.core.artefact import load
from stash.core.documents import MAX_BYTES
from stash.core.errors import StashError, StoreError, UserError
from stash.core.files import read_up_to
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.printable import printable, printable_line
from stash.core.records.profile import Profile
from stash.core.secrets import mask_text
from stash.core.version import __version__
from stash.study import overview, study_folder
from stash.study.backend import Leases, open_leases, spent_dollars
from stash.study.cell_engines import describe
from stash.study.cells import Cell, make_cells
from stash.study.controller import RunOutcome, StudyController
from stash.study.page import page as page_of_study
from stash.study.places import find_places
from stash.study.programs import SystemPrograms
from stash.study.results import make_results
from stash.study.status import StudyReading, read_standings
from stash.study.study_file import StudyFile, read_study
from stash.study.study_folder import StudyFolder, folder_of_study
from stash.study.study_options import CharacterizeOptions
from stash.ui.page import Page


def run_study(options: CharacterizeOptions) -> None:
    """What ``stash characterize`` does."""
    file = read_study(options.study)
    folder = folder_of_study(file.path)
    every = cells_of(file)
    events = study_folder.read_events(folder.journal)
    reading = read_standings(file.name, every, events, options.retry)
    dollars = reading.remaining_estimate.dollars
    if not options.dry_run:
        require_linux("stash characterize")
        if dollars is not None and options.max_dollars is None:
            raise UserError(
                f"what is left of {reading.name} costs about ${dollars:,.2f}; say what the study may cost at most "
                "with --max-dollars DOLLARS"
            )
    if options.dry_run or not options.quiet:
        print_answer(
            overview.page(reading, spent_dollars(events), file.study.results or str(folder.results))
        )
    if options.dry_run:
        texts = {cell.id: describe(cell, folder).describe() for cell in reading.ahead}
        print(printable(mask_text(overview.script(reading, texts))), end="")
        return
    with folder.lock(), interrupted_by(*REQUESTS):
        outcome, reading = _run_cells(file, folder, every, options)
    # Say how the study stands; raises StashError where something may still run, or nothing was
    # measured.
    counts = {str(state): number for state, number in reading.counts(reading.cells).items()}
    print(f"{counts.get('done', 0)} of {len(reading.cells)} cells are done.", end="")
    print(f" ${outcome.dollars:,.2f} spent." if outcome.dollars else "")
    for sentence in outcome.not_started:
        _print_status(f"note: {sentence}")
    if outcome.left:
        raise StashError("\n".join(outcome.left))
    if not counts.get("done"):
        raise StashError(
            "no cell was measured; the sentences above say why, and --retry tries failed ones again"
        )
    notes = {
        "failed": "failed; --retry runs them again",
        "to run": "are left; the same command goes on",
    }
    for state, note in notes.items():
        if state in counts:
            print(f"{counts[state]} {note}.", file=sys.stderr)
    if "failed" in counts or "to run" in counts:
        raise typer.Exit(1)


def cells_of(file: StudyFile) -> tuple[Cell, ...]:
    """The cells of a study; raises UserError."""
    return make_cells(file, find_places(file, load_catalog()), __version__)


def _run_cells(
    file: StudyFile, folder: StudyFolder, every: tuple[Cell, ...], options: CharacterizeOptions
) -> tuple[RunOutcome, StudyReading]:
    """Run what is left, and read again how the study stands."""
    wanted = file.study.results or str(folder.results)
    remote = "://" in wanted or "::" in wanted
    store = open_store(wanted if remote else str(folder.work / Path(wanted).expanduser()))

    def keep(cell: Cell) -> str:
        return store.put(read_up_to(folder.cell(cell.id).profile, MAX_BYTES), cell.title)

    # again: only this process writes it from now on
    events = study_folder.read_events(folder.journal)
    reading = read_standings(file.name, every, events, options.retry)
    for cell in (
        reading.cells
    ):  # what the store did not take when it was measured: the same bytes have the same name
        last = reading.standings[cell.id].last
        if last is not None and last.ending == "done" and not last.artefact:
            with suppress(OSError, StoreError):
                keep(cell)
    programs = SystemPrograms()
    controller = StudyController(
        folder=folder,
        programs=programs,
        leases=Leases(folder.journal, programs, spent_dollars(events)),
        keep=keep,
        max_dollars=options.max_dollars,
        seconds=reading.seconds,
        say=(lambda _: None) if options.quiet else _print_status,
    )
    outcome = controller.run_cells(reading.cells, reading.standings, open_leases(events))
    return outcome, read_standings(file.name, every, study_folder.read_events(folder.journal))


def page(study: Path, into: Path = Path()) -> Page:
    """The report of a study as far as it is done, to be written into the folder ``into``; raises UserError."""
    file = read_study(study)
    folder = folder_of_study(study)
    reading = read_standings(file.name, cells_of(file), study_folder.read_events(folder.journal))
    breakdowns = {}
    files = {}
    for cell, profile in _profiles(reading, folder):
        path = folder.cell(cell.id).profile
        with suppress(StashError):  # nothing is known of it: shown as not measured
            breakdowns[cell.id] = attribute(profile, str(path))
            files[cell.id] = quote(Path(os.path.relpath(path, into.resolve())).as_posix())
    where = file.study.results or str(folder.results)
    return page_of_study(reading, make_results(reading.cells, breakdowns), study.name, where, files)


def _profiles(reading: StudyReading, folder: StudyFolder) -> Iterator[tuple[Cell, Profile]]:
    """One by one, those of cells that are done, but for what was removed or is no profile any more."""
    for cell in reading.cells:
        if reading.standings[cell.id].state == "done":
            with suppress(StashError):
                yield cell, load(folder.cell(cell.id).profile)


def _print_status(text: str) -> None:
    print(printable_line(mask_text(text), 600), flush=True)
