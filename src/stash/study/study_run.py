"""A study from its file to its results: read, shown as it stands, run, and read again; what commands do with one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import typer

from stash.analysis.attribution import attribute
from stash.catalog.layers import load as load_catalog
from stash.catalog.offers import Catalog
from stash.core.artefact import load
from stash.core.documents import MAX_BYTES
from stash.core.errors import StashError, StoreError, UserError
from stash.core.files import read_up_to, write_whole
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.printable import printable, printable_line, strict_json
from stash.core.records.profile import Profile
from stash.core.secrets import masked_text
from stash.core.version import __version__
from stash.lab.zoo.registry import WORKLOADS
from stash.report.output import printed
from stash.store.store import Store
from stash.store.storing import opened
from stash.study import overview, study_folder
from stash.study.backend import JobBackend, open_leases, spent
from stash.study.cell_engines import describe
from stash.study.cells import Cell, ZooWorkload, cells
from stash.study.controller import RunOutcome, StudyController
from stash.study.emulating import CalibratingProfile
from stash.study.fields import EmulatedTarget
from stash.study.page import page as page_of_study
from stash.study.places import places
from stash.study.programs import SystemPrograms
from stash.study.results import look, results
from stash.study.status import StudyReading, read
from stash.study.study_file import StudyFile, read_study
from stash.study.study_folder import StudyFolder, of_study
from stash.study.study_options import CharacterizeOptions
from stash.ui.page import Page


def run(options: CharacterizeOptions) -> None:
    """What ``stash characterize`` does."""
    file = read_study(options.study)
    folder = of_study(file.path)
    every = cells_of(file, _instances(folder, options.instances))
    events = study_folder.read(folder.journal)
    reading = read(file.name, every, events, options.retry)
    submissions = {cell.id: describe(cell, folder) for cell in reading.cells}
    lanes = {id: submission.lane for id, submission in submissions.items()}
    about = (spent(events), file.study.results or str(folder.results))
    if options.dry_run and options.json:
        described = {cell.id: submissions[cell.id].document() for cell in reading.ahead}
        print(strict_json(overview.document(reading, lanes, described, *about)))
        return
    price = reading.takes(lanes).dollars or 0.0
    if not options.dry_run:
        require_linux("stash characterize")
        if reading.paid and options.max_dollars is None:
            raise UserError(
                f"what is left of {reading.name} costs about ${price:,.2f}; say what the study may cost at most with "
                "--max-dollars DOLLARS"
            )
    if options.dry_run or not options.quiet:
        printed(overview.page(reading, lanes, *about))
    if options.dry_run:
        texts = {cell.id: submissions[cell.id].describe() for cell in reading.ahead}
        print(printable(masked_text(overview.script(reading, texts))), end="")
        return
    with folder.held(), interrupted_by(*REQUESTS):
        if options.instances is not None:
            write_whole(folder.instances, _content(options.instances))
        outcome, reading = _run(file, folder, every, options)
    _finish(outcome, reading)


def _instances(folder: StudyFolder, given: Path | None = None) -> Path | None:
    """The user's own instances: as given, else those that the study was last run with."""
    return folder.instances if given is None and folder.instances.exists() else given


def cells_of(file: StudyFile, instances: Path | None) -> tuple[Cell, ...]:
    """The cells of a study, with the user's own ``instances`` besides the catalog's; raises UserError."""
    facts = load_catalog(instances)
    zoo = {
        name: ZooWorkload(spec.batch, spec.gradient_bytes, spec.forward_flops, spec.moved_bytes, spec.trained_tensors)
        for name, spec in WORKLOADS.items()
    }
    return cells(file, places(file, facts), zoo, __version__, _calibrations(file, facts))


def _calibrations(file: StudyFile, facts: Catalog) -> dict[str, CalibratingProfile]:
    """The profiles that the study calibrates by, read; raises UserError naming line and field."""
    found: dict[str, CalibratingProfile] = {}
    for number, target in enumerate(file.study.targets):
        given = target.calibrate if isinstance(target, EmulatedTarget) else None
        for path in given.values() if isinstance(given, dict) else [given] if given is not None else []:
            try:
                profile = load(file.folder / path)
            except StashError as error:
                raise file.mistake(("targets", number, "calibrate"), str(error)) from None
            device = profile.hosts[0].gpus[0].name if profile.hosts and profile.hosts[0].gpus else None
            with suppress(UserError):
                found[path] = CalibratingProfile(path, profile, None if device is None else facts.gpu(device))
            found.setdefault(path, CalibratingProfile(path, profile, None))
    return found


def _run(
    file: StudyFile, folder: StudyFolder, every: Sequence[Cell], options: CharacterizeOptions
) -> tuple[RunOutcome, StudyReading]:
    """Run what is left, and read again how the study stands."""
    store = _results(file, folder)
    events = study_folder.read(folder.journal)  # again: only this process writes it from now on
    reading = read(file.name, every, events, options.retry)
    for cell in reading.cells:  # what the store did not take when it was measured: the same bytes have the same name
        last = reading.standings[cell.id].last
        if last is not None and last.ending == "done" and not last.artefact:
            with suppress(OSError, StoreError):
                store.put(_content(folder.cell(cell.id).profile), cell.title)
    controller = StudyController(
        backend=JobBackend(folder, SystemPrograms(), spent(events)),
        describe=describe,
        keep=lambda cell: store.put(_content(folder.cell(cell.id).profile), cell.title),
        max_dollars=options.max_dollars,
        estimates=reading.estimates,
        say=_say_nothing if options.quiet else _say,
    )
    try:
        outcome = controller.run(reading.cells, reading.standings, open_leases(events))
    finally:
        for path in sorted(folder.probes.glob("*.host.json")):  # next to the profiles that hold them
            with suppress(OSError, StashError):
                store.put(_content(path), path.name)
    return outcome, read(file.name, every, study_folder.read(folder.journal))


def page(study: Path, into: Path = Path()) -> Page:
    """The report of a study as far as it is done, to be written into the folder ``into``; raises UserError."""
    file, reading, profiles = measured(study)
    folder = of_study(study)
    breakdowns, looks, files = {}, {}, {}
    for cell, profile in profiles:
        path = folder.cell(cell.id).profile
        with suppress(StashError):  # nothing is known of it: shown as not measured
            breakdowns[cell.id], looks[cell.id] = attribute(profile, str(path)), look(profile)
            files[cell.id] = quote(Path(os.path.relpath(path, into.resolve())).as_posix())
    where = file.study.results or str(folder.results)
    return page_of_study(reading, results(reading.cells, breakdowns, looks), study.name, where, files)


def measured(study: Path) -> tuple[StudyFile, StudyReading, Iterator[tuple[Cell, Profile]]]:
    """A study, how it stands, and one by one the profiles of cells that are done; raises UserError."""
    file, folder = read_study(study), of_study(study)
    reading = read(file.name, cells_of(file, _instances(folder)), study_folder.read(folder.journal))
    return file, reading, _profiles(reading, folder)


def _profiles(reading: StudyReading, folder: StudyFolder) -> Iterator[tuple[Cell, Profile]]:
    for cell in reading.cells:
        if reading.standings[cell.id].state == "done":
            try:
                profile = load(folder.cell(cell.id).profile)
            except StashError:
                continue  # it was removed, or is no profile any more
            yield cell, profile


def _results(file: StudyFile, folder: StudyFolder) -> Store:
    """The store that profiles go to; a folder is taken from where the study file lies."""
    wanted = file.study.results
    if wanted is None:
        return opened(str(folder.results))
    remote = "://" in wanted or "::" in wanted
    return opened(wanted if remote else str(folder.work / Path(wanted).expanduser()))


def _content(path: Path) -> bytes:
    """Of an artefact; raises OSError."""
    return read_up_to(path, MAX_BYTES)


def _say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


def _say_nothing(text: str) -> None:
    """With --quiet."""


def _finish(outcome: RunOutcome, reading: StudyReading) -> None:
    """Say how the study stands; raises StashError where something may still run, or nothing was measured."""
    counts = {str(state): number for state, number in reading.counts().items()}
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
