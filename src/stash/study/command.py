"""``stash characterize``: runs a study's cells wherever they are to be measured, and goes on where it was left.

Parses, reads the study, says what it takes, hands it to ``rent/study``. Measures nothing itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from stash.core import parsers
from stash.core.errors import StashError, StoreError, UserError
from stash.core.interrupts import REQUESTS, interrupted_by, require_linux
from stash.core.printable import printable, printable_line, strict_json
from stash.core.secrets import masked_text
from stash.ui.options import Options, argument, flag, json_flag, option

if TYPE_CHECKING:
    from stash.catalog.offers import Catalog
    from stash.core.records.profile import Profile
    from stash.store.store import Store
    from stash.study.backend import Submission
    from stash.study.cells import Cell, ZooWorkload
    from stash.study.controller import RunOutcome
    from stash.study.emulating import CalibratingProfile
    from stash.study.status import StudyReading
    from stash.study.study_file import StudyFile
    from stash.study.study_folder import StudyEvent, StudyFolder
    from stash.ui.page import Page

_FEATURES, _FEATURES_ON = "features.yaml", "p3.8xlarge"


@dataclass(frozen=True, kw_only=True)
class CharacterizeOptions(Options):
    """One call of ``stash characterize``."""

    study: Path | None = argument("STUDY", "A study file, like study.yaml.", Path, default=None)
    dry_run: bool = flag("Print the matrix, what it takes and all that would be run, and stop.")
    json: bool = json_flag("With --dry-run: print it as JSON for other programs.")
    max_dollars: float | None = option(
        "DOLLARS",
        "A hard stop; counts what is running, and earlier runs of the study.",
        parsers.dollars,
        was=("--max-cost",),
    )
    max_hours: float | None = option("HOURS", "A hard stop of this run.", parsers.hours)
    """In seconds."""
    retry: bool = flag("Run cells that failed once more.")
    instances: Path | None = option("FILE", "Your own instances in YAML.", Path)
    features: bool = flag(
        "The paper's study of model features (ResNets, VGGs): writes STUDY, else features.yaml, if there is none, "
        "and runs it."
    )
    on: str | None = option(
        "PLACE", f"With --features: an instance of the catalog, emulated here ({_FEATURES_ON}), or `here` for this "
        "machine.",
    )  # fmt: skip

    def check(self) -> None:
        if self.json and not self.dry_run:
            raise UserError("--json prints what would be run; add --dry-run")


def characterize(options: CharacterizeOptions) -> None:
    """Measure workloads × batches × machines: one study file in, profiles in a store out.

    Finished cells are never run again: after Ctrl-C, a crash or a limit the same command goes on.

    What is rented is released at the end, also after errors.

    [bold]Examples[/bold]

      stash characterize study.yaml --dry-run
      stash characterize study.yaml --max-dollars 40
      stash characterize study.yaml --dry-run --json | jq '.cells[].state'
      stash characterize --features --on p3.8xlarge
    """
    from stash.study import study_folder
    from stash.study.backend import spent
    from stash.study.cell_engines import describe
    from stash.study.study_folder import of_study

    file = _feature_study(options) if options.features else _named(options.study, options.on)
    folder = of_study(file.path)
    cells = cells_of(file, options.instances)
    events = study_folder.read(folder.journal)
    reading = _reading(file, cells, events, options.retry)
    submissions = {cell.id: describe(cell, folder) for cell in reading.cells}
    preview = _StudyPreview(reading, submissions, spent(events), file.study.results or str(folder.results))
    if options.dry_run:
        preview.print_all(options.json)
        return
    require_linux("stash characterize")
    if reading.paid and options.max_dollars is None:
        raise UserError(f"{preview.price()}; say what the study may cost at most with --max-dollars DOLLARS")
    preview.print_head()
    with folder.held(), interrupted_by(*REQUESTS):
        outcome, reading = _run(file, folder, cells, (options.max_dollars, options.max_hours), options.retry)
    _finish(outcome, reading)


def _named(study: Path | None, on: str | None) -> StudyFile:
    if study is None:
        raise UserError("name a study file, like `stash characterize study.yaml`, or add --features")
    if on is not None:
        raise UserError("--on says where the study of --features is run; write a study's own places into `targets:`")
    return _read(study)


def _feature_study(options: CharacterizeOptions) -> StudyFile:
    """The paper's study of model features: the file that is there, else a new one, written unless it is a dry run.

    Raises UserError for ``--on`` where a file is there.
    """
    from stash.core.files import write_whole
    from stash.lab.zoo.registry import feature_study
    from stash.study.feature_study import study_text
    from stash.study.study_file import of_text

    path = options.study or Path(_FEATURES)
    if path.exists():
        if options.on is not None:
            raise UserError(f"{path} is there and has its own `targets:`; leave out --on, or name another file")
        return _read(path)
    text = study_text(feature_study(), options.on or _FEATURES_ON)
    file = of_text(text, path)
    cells_of(file, options.instances)  # an unknown instance is named before anything is written
    if not options.dry_run:
        try:
            write_whole(path, text.encode())
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}; name another file") from error
    return file


def _read(path: Path) -> StudyFile:
    from stash.study.study_file import read_study

    return read_study(path)


def cells_of(file: StudyFile, instances: Path | None) -> tuple[Cell, ...]:
    from stash import catalog
    from stash.core.version import __version__
    from stash.study.cells import cells
    from stash.study.places import places

    facts = catalog.load(instances)
    return cells(file, places(file, facts), _zoo(), __version__, _calibrations(file, facts))


def _zoo() -> dict[str, ZooWorkload]:
    from stash.lab.zoo.registry import WORKLOADS
    from stash.study.cells import ZooWorkload

    return {
        name: ZooWorkload(spec.batch, spec.gradient_bytes, spec.forward_flops, spec.moved_bytes, spec.trained_tensors)
        for name, spec in WORKLOADS.items()
    }


def _calibrations(file: StudyFile, facts: Catalog) -> dict[str, CalibratingProfile]:
    """The profiles that the study calibrates by, read; raises UserError naming line and field."""
    from stash.core.artefact import load
    from stash.study.emulating import CalibratingProfile
    from stash.study.fields import EmulatedTarget

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


def _reading(file: StudyFile, cells: Sequence[Cell], events: Sequence[StudyEvent], retry: bool) -> StudyReading:
    from stash.study.status import read

    return read(file.name, cells, events, retry)


class _StudyPreview:
    """What is printed of a study before it is run."""

    def __init__(self, reading: StudyReading, submissions: dict[str, Submission], spent: float, results: str) -> None:
        self.reading, self.submissions, self.spent, self.results = reading, submissions, spent, results
        self.lanes = {id: submission.lane for id, submission in submissions.items()}

    def price(self) -> str:
        dollars = self.reading.takes(self.lanes).dollars or 0.0
        return f"what is left of {self.reading.name} costs about ${dollars:,.2f}"

    def print_head(self) -> None:
        from stash.report.output import printed
        from stash.study.overview import page

        printed(page(self.reading, self.lanes, self.spent, self.results))

    def print_all(self, json: bool) -> None:
        from stash.study.overview import document, script

        if json:
            described: dict[str, Any] = {cell.id: _document(self.submissions[cell.id]) for cell in self.reading.ahead}
            print(strict_json(document(self.reading, self.lanes, described, self.spent, self.results)))
            return
        self.print_head()
        texts = {cell.id: self.submissions[cell.id].describe() for cell in self.reading.ahead}
        print(printable(masked_text(script(self.reading, texts))), end="")


def _document(submission: Submission) -> dict[str, Any]:
    return {
        "files": dict(submission.files),
        "command": list(submission.command),
        "fetch": [list(words) for words in submission.fetch],
        "release": [list(words) for words in submission.release],
    }


def _run(
    file: StudyFile,
    folder: StudyFolder,
    cells: Sequence[Cell],
    limits: tuple[float | None, float | None],
    retry: bool,
) -> tuple[RunOutcome, StudyReading]:
    """Run what is left, and read again how the study stands."""
    from stash.study import study_folder
    from stash.study.backend import JobBackend, open_leases, spent
    from stash.study.cell_engines import describe
    from stash.study.controller import RunLimits, StudyController
    from stash.study.programs import SystemPrograms

    results = _results(file, folder)
    events = study_folder.read(folder.journal)  # again: only this process writes it from now on
    reading = _reading(file, cells, events, retry)
    _put_missing(reading, folder, results)
    controller = StudyController(
        backend=JobBackend(folder, SystemPrograms(), spent(events)),
        describe=describe,
        keep=lambda cell: results.put(_content(folder.cell(cell.id).profile), cell.title),
        limits=RunLimits(*limits),
        estimates=reading.estimates,
        say=_say,
    )
    try:
        outcome = controller.run(reading.cells, reading.standings, open_leases(events))
    finally:
        _put_probes(folder, results)
    return outcome, _reading(file, cells, study_folder.read(folder.journal), retry=False)


def page(study: Path, into: Path = Path()) -> Page:
    """The report of a study as far as it is done, to be written into the folder ``into``; raises UserError."""
    from stash.analysis.attribution import attribute
    from stash.study.page import page as page_of_study
    from stash.study.results import look, results
    from stash.study.study_folder import of_study

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
    from stash.study import study_folder
    from stash.study.study_folder import of_study

    file, folder = _read(study), of_study(study)
    reading = _reading(file, cells_of(file, None), study_folder.read(folder.journal), retry=False)
    return file, reading, _profiles(reading, folder)


def _profiles(reading: StudyReading, folder: StudyFolder) -> Iterator[tuple[Cell, Profile]]:
    from stash.core.artefact import load

    for cell in reading.cells:
        if reading.standings[cell.id].state == "done":
            try:
                profile = load(folder.cell(cell.id).profile)
            except StashError:
                continue  # it was removed, or is no profile any more
            yield cell, profile


def _results(file: StudyFile, folder: StudyFolder) -> Store:
    """The store that profiles go to; a folder is taken from where the study file lies."""
    from stash.store.storing import opened

    wanted = file.study.results
    if wanted is None:
        return opened(str(folder.results))
    remote = "://" in wanted or "::" in wanted
    return opened(wanted if remote else str(folder.work / Path(wanted).expanduser()))


def _content(path: Path) -> bytes:
    """Of an artefact; raises OSError."""
    from stash.core.documents import MAX_BYTES
    from stash.core.files import read_up_to

    return read_up_to(path, MAX_BYTES)


def _put_probes(folder: StudyFolder, results: Store) -> None:
    """Save what was measured of machines next to the profiles that hold it; the same bytes have the same name."""
    for path in sorted(folder.probes.glob("*.host.json")):
        with suppress(OSError, StashError):
            results.put(_content(path), path.name)


def _put_missing(reading: StudyReading, folder: StudyFolder, results: Store) -> None:
    """Put what the store did not take when it was measured: the same bytes have the same name, so twice is once."""
    for cell in reading.cells:
        last = reading.standings[cell.id].last
        if last is not None and last.ending == "done" and not last.artefact:
            with suppress(OSError, StoreError):
                results.put(_content(folder.cell(cell.id).profile), cell.title)


def _say(text: str) -> None:
    print(printable_line(masked_text(text), 600), flush=True)


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
