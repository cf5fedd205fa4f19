"""A study from its file to its results: read, shown as it stands, run, and read again; what commands do with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import typer

from stash.api import Store, attribute, load_catalog, open_store, print_answer
from stash.core.artefact import load
from stash.core.documents import MAX_BYTES
from stash.core.errors import StashError, StoreError, UserError
from stash.core.files import read_up_to
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.printable import printable, printable_line
from stash.core.records.profile import Profile
from stash.core.secrets import masked_text
from stash.core.version import __version__
from stash.study import overview, study_folder
from stash.study.backend import Leases, open_leases, spent
from stash.study.cell_engines import describe
from stash.study.cells import Cell, cells
from stash.study.controller import RunOutcome, StudyController
from stash.study.page import page as page_of_study
from stash.study.places import places
from stash.study.programs import SystemPrograms
from stash.study.results import read_exchange, results
from stash.study.status import StudyReading, read
from stash.study.study_file import StudyFile, read_study
from stash.study.study_folder import StudyFolder, of_study
from stash.study.study_options import CharacterizeOptions
from stash.ui.page import Page


def run(options: CharacterizeOptions) -> None:
    """What ``stash characterize`` does."""
    file = read_study(options.study)
    folder = of_study(file.path)
    every = cells_of(file)
    events = study_folder.read(folder.journal)
    reading = read(file.name, every, events, options.retry)
    dollars = reading.takes.dollars
    if not options.dry_run:
        require_linux("stash characterize")
        if dollars is not None and options.max_dollars is None:
            raise UserError(
                f"what is left of {reading.name} costs about ${dollars:,.2f}; say what the study may cost at most "
                "with --max-dollars DOLLARS"
            )
    if options.dry_run or not options.quiet:
        print_answer(overview.page(reading, spent(events), file.study.results or str(folder.results)))
    if options.dry_run:
        texts = {cell.id: describe(cell, folder).describe() for cell in reading.ahead}
        print(printable(masked_text(overview.script(reading, texts))), end="")
        return
    with folder.held(), interrupted_by(*REQUESTS):
        outcome, reading = _run(file, folder, every, options)
    _finish(outcome, reading)


def cells_of(file: StudyFile) -> tuple[Cell, ...]:
    """The cells of a study; raises UserError."""
    return cells(file, places(file, load_catalog()), __version__)


def _run(
    file: StudyFile, folder: StudyFolder, every: tuple[Cell, ...], options: CharacterizeOptions
) -> tuple[RunOutcome, StudyReading]:
    """Run what is left, and read again how the study stands."""
    store = _results(file, folder)

    def keep(cell: Cell) -> str:
        return store.put(read_up_to(folder.cell(cell.id).profile, MAX_BYTES), cell.title)

    events = study_folder.read(folder.journal)  # again: only this process writes it from now on
    reading = read(file.name, every, events, options.retry)
    for cell in reading.cells:  # what the store did not take when it was measured: the same bytes have the same name
        last = reading.standings[cell.id].last
        if last is not None and last.ending == "done" and not last.artefact:
            with suppress(OSError, StoreError):
                keep(cell)
    programs = SystemPrograms()
    controller = StudyController(
        folder=folder,
        programs=programs,
        leases=Leases(folder.journal, programs, spent(events)),
        keep=keep,
        max_dollars=options.max_dollars,
        seconds=reading.seconds,
        say=(lambda _: None) if options.quiet else _say,
    )
    outcome = controller.run(reading.cells, reading.standings, open_leases(events))
    return outcome, read(file.name, every, study_folder.read(folder.journal))


def page(study: Path, into: Path = Path()) -> Page:
    """The report of a study as far as it is done, to be written into the folder ``into``; raises UserError."""
    file, folder = read_study(study), of_study(study)
    reading = read(file.name, cells_of(file), study_folder.read(folder.journal))
    breakdowns, exchanges, files = {}, {}, {}
    for cell, profile in _profiles(reading, folder):
        path = folder.cell(cell.id).profile
        with suppress(StashError):  # nothing is known of it: shown as not measured
            breakdowns[cell.id], exchanges[cell.id] = attribute(profile, str(path)), read_exchange(profile)
            files[cell.id] = quote(Path(os.path.relpath(path, into.resolve())).as_posix())
    where = file.study.results or str(folder.results)
    return page_of_study(reading, results(reading.cells, breakdowns, exchanges), study.name, where, files)


def _profiles(reading: StudyReading, folder: StudyFolder) -> Iterator[tuple[Cell, Profile]]:
    """One by one, those of cells that are done, but for what was removed or is no profile any more."""
    for cell in reading.cells:
        if reading.standings[cell.id].state == "done":
            with suppress(StashError):
                yield cell, load(folder.cell(cell.id).profile)


def _results(file: StudyFile, folder: StudyFolder) -> Store:
    """The store that profiles go to; a folder is taken from where the study file lies."""
    wanted = file.study.results or str(folder.results)
    remote = "://" in wanted or "::" in wanted
    return open_store(wanted if remote else str(folder.work / Path(wanted).expanduser()))


def _say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _finish(outcome: RunOutcome, reading: StudyReading) -> None:
    """Say how the study stands; raises StashError where something may still run, or nothing was measured."""
    counts = {str(state): number for state, number in reading.counts(reading.cells).items()}
    print(f"{counts.get('done', 0)} of {len(reading.cells)} cells are done.", end="")
    print(f" ${outcome.dollars:,.2f} spent." if outcome.dollars else "")
    for sentence in outcome.not_started:
        _say(f"note: {sentence}")
    if outcome.left:
        raise StashError("\n".join(outcome.left))
    if not counts.get("done"):
        raise StashError("no cell was measured; the sentences above say why, and --retry tries failed ones again")
    notes = {"failed": "failed; --retry runs them again", "to run": "are left; the same command goes on"}
    for state, note in notes.items():
        if state in counts:
            print(f"{counts[state]} {note}.", file=sys.stderr)
    if "failed" in counts or "to run" in counts:
        raise typer.Exit(1)
