"""Runs the cells of a study, in order, one at a time in each lane, until all are done or a limit is reached.

It only starts, looks and ends. Everything it knows is in the journal before it is acted on, so a controller that is
killed is followed by one that goes on: what still runs is waited for, what ended meanwhile is taken, what was rented
is used or released. Its clock and its programs are given, and can be made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from stash.core.errors import StashError
from stash.core.interrupts import follow_requests, postpone_requests
from stash.study.backend import Leases, OpenLease, Submission
from stash.study.cell_engines import describe
from stash.study.cells import Cell
from stash.study.judgement import CellJudgement, fetch_profile, judge
from stash.study.programs import SystemPrograms, exit_code
from stash.study.status import CLOUD_START, HOUR, CellStanding
from stash.study.study_folder import CellFolder, StudyEvent, StudyFolder, append_event

_TICK = 0.5
_GRACE = 30.0
"""Seconds to end in order, until it is done by force: a profile is saved within them."""
_TRIES = 3
"""Of a cell whose machines were taken away, within one run."""


class RunOutcome(NamedTuple):
    """What became of one run."""

    not_started: tuple[str, ...]
    """Why cells were not started, a sentence each."""
    left: tuple[str, ...]
    """What may still be running, a sentence each."""
    dollars: float


class _Running(NamedTuple):
    cell: Cell
    submission: Submission
    began: float


@dataclass
class StudyController:
    """One run of a study."""

    folder: StudyFolder
    programs: SystemPrograms
    leases: Leases
    keep: Callable[[Cell], str]
    """Puts a finished cell's profile into the store; its name there. Raises StashError."""
    max_dollars: float | None
    """A hard stop for the whole study, earlier runs and what is running included; ``None``: none."""
    seconds: Mapping[str, float]
    """What each cell takes, as estimated."""
    say: Callable[[str], None]
    _running: dict[str, _Running] = field(default_factory=dict)
    """By lane."""
    _pending: list[Cell] = field(default_factory=list)
    _submissions: dict[str, Submission] = field(default_factory=dict)
    _tries: Counter[str] = field(default_factory=Counter)
    _refused: dict[str, None] = field(default_factory=dict)
    _too_large: dict[object, int] = field(default_factory=dict)
    _places: dict[str, bool] = field(default_factory=dict)
    """Whether a cell is done there, of those where one is; of others, the first has failed."""

    def run_cells(
        self,
        cells: Sequence[Cell],
        standings: Mapping[str, CellStanding],
        open_leases: Sequence[OpenLease] = (),
    ) -> RunOutcome:
        """Run what is to run, in order; KeyboardInterrupt is raised on once all has ended and is released."""
        self._submissions = {cell.id: describe(cell, self.folder) for cell in cells}
        self._pending = [cell for cell in cells if standings[cell.id].state == "to run"]
        done = [cell for cell in cells if standings[cell.id].state == "done"]
        self._places = {cell.place.name: True for cell in done}
        try:
            self._take_on(cells, open_leases)
            while True:
                follow_requests()
                for running in list(self._running.values()):
                    if not self.programs.alive(self._folder(running.cell)):
                        self._finish(running)
                if self.max_dollars is not None and self.leases.dollars >= self.max_dollars:
                    # Estimates may be wrong, limits hold.
                    self._end_all(f"--max-dollars {self.max_dollars:g} was reached", only_paid=True)
                self._start()
                if not self._running:
                    break
                self.programs.sleep(_TICK)
        except BaseException:
            try:
                self._end_all("it was interrupted")
            finally:
                self.leases.release_all()
                for sentence in self.leases.left:
                    self.say(sentence)
            raise
        self.leases.release_all()
        return RunOutcome(tuple(self._refused), tuple(self.leases.left), self.leases.dollars)

    def _take_on(self, cells: Sequence[Cell], open_leases: Sequence[OpenLease]) -> None:
        """Wait for what an earlier controller has started, keep what is needed, and end the rest."""
        known = {cell.id: cell for cell in cells}
        for lease in open_leases:
            self.leases.opened[lease.name] = lease
            cell = known.get(lease.cell)
            # Of two of one lane, since the study was changed, one can be waited for.
            if cell is not None and cell.lane not in self._running:
                self._pending = [other for other in self._pending if other.id != cell.id]
                self._running[cell.lane] = _Running(cell, self._submissions[cell.id], lease.began)
                self.say(f"{cell.title}: still running, or ended meanwhile; taken on")
                continue
            if lease.cell:
                self.programs.kill(self.folder.cell(lease.cell))
            if cell is not None or not any(
                self._submissions[each.id].lease == lease.name for each in self._pending
            ):
                self.leases.release(lease.name)

    def _finish(self, running: _Running) -> None:
        """Take what a cell has left; until that is done it counts as running, should somebody interrupt."""
        cell = running.cell
        submission = running.submission
        code = exit_code(self._folder(cell))
        unfetched = (
            fetch_profile(self.programs, submission.fetch)
            if code == 0 and submission.fetch
            else None
        )
        found = judge(self._folder(cell), submission.lost, code)
        if unfetched is not None and found.ending == "failed":
            found = CellJudgement("failed", f"its profile could not be fetched: {unfetched}")
        with (
            postpone_requests()
        ):  # from here on it is done whole, or what was measured would be measured again
            self._running.pop(cell.lane, None)
            self._record(running, found)
        # What is left of a lost cell may still be at work on what was rented for it.
        if found.ending == "lost" or not self._is_next(cell.lane, submission.lease):
            self.leases.release(submission.lease)

    def _record(self, running: _Running, found: CellJudgement) -> None:
        cell = running.cell
        now = self.programs.now()
        artefact = note = ""
        seconds = max(0.0, now - running.began)
        price = cell.dollars_per_hour
        dollars = None if price is None else price * seconds / HOUR
        if found.ending == "done":
            try:
                artefact = self.keep(cell)
            except StashError as error:
                note = f" (its profile stays in the cell's folder: {error})"
        event = StudyEvent(
            at=now,
            what="ended",
            lease=running.submission.lease,
            cell=cell.id,
            ending=found.ending,
            why=found.why,
            seconds=seconds,
            dollars=dollars,
            artefact=artefact,
        )
        append_event(self.folder.journal, event)
        if found.ending == "done":
            self._places[cell.place.name] = True
        elif found.ending == "failed":
            self._places.setdefault(cell.place.name, False)
        elif found.ending == "out of memory" and cell.batch is not None:
            least = self._too_large.get(cell.group_key, cell.batch)
            self._too_large[cell.group_key] = min(cell.batch, least)
        elif found.ending == "lost" and self._tries[cell.id] < _TRIES:
            self._pending.insert(0, cell)
        elif found.ending == "lost":
            self._refused[f"{cell.title}: {found.why}; the same command runs it again"] = None
        cost = "" if dollars is None else f", ${dollars:.2f}"
        why = f": {found.why}" if found.why else ""
        left = len(self._running) + len(self._pending)
        self.say(
            f"{cell.title}: {found.ending} after {seconds:.0f} s{cost}{why}{note} ({left} left)"
        )

    def _is_next(self, lane: str, lease: str) -> bool:
        """Whether what is to be started next in this lane takes what was rented."""
        following = next((cell for cell in self._pending if cell.lane == lane), None)
        return (
            following is not None
            and self._reason_to_skip(following) is None
            and self._submissions[following.id].lease == lease
        )

    def _start(self) -> None:
        for cell in list(self._pending):
            place = cell.place.name
            lease = self._submissions[cell.id].lease
            there = {each.cell.place.name for each in self._running.values()}
            if cell.lane in self._running or (place not in self._places and place in there):
                continue  # of a new place it has yet to be seen if anything works there
            why = self._reason_to_skip(cell)
            price = cell.dollars_per_hour
            if why is None and price is not None and self.max_dollars is not None:
                # By its estimate the limit would be passed.
                start = 0.0 if lease in self.leases.opened else CLOUD_START
                takes = price * (self.seconds[cell.id] + start) / HOUR
                if self.leases.dollars + takes > self.max_dollars:
                    why = f"--max-dollars {self.max_dollars:g} leaves no money for more on {place}"
            self._pending.remove(cell)
            if why is None:
                self._begin(cell)
                continue
            self._refused[why] = None
            if not self._is_next(cell.lane, lease):
                self.leases.release(lease)

    def _reason_to_skip(self, cell: Cell) -> str | None:
        """Why this cell need not be tried, by what was seen of others in this run."""
        least = self._too_large.get(cell.group_key)
        if least is not None and cell.batch is not None and cell.batch >= least:
            return f"{cell.workload} on {cell.column_name}: batches from {least} on were not tried, it ran out of memory"
        if not self._places.get(cell.place.name, True):
            return f"{cell.place.name}: nothing more was tried after its first cell failed"
        return None

    def _begin(self, cell: Cell) -> None:
        submission = self._submissions[cell.id]
        folder = self._folder(cell)
        running = _Running(cell, submission, self.programs.now())
        program = submission.command[0]
        if not self.programs.has(program):
            self._record(
                running, CellJudgement("failed", f"there is no program {program!r} on PATH")
            )
            return
        self._tries[cell.id] += 1
        try:
            for stale in (
                folder.profile,
                folder.status,
                folder.process,
            ):  # before the journal has a new try
                stale.unlink(missing_ok=True)
            submission.write_files(folder)
            self.leases.open_lease(submission, cell.dollars_per_hour)
            self._running[cell.lane] = (
                running  # before it does: who interrupts ends whatever has begun
            )
            event = StudyEvent(
                at=running.began, what="started", lease=submission.lease, cell=cell.id
            )
            append_event(self.folder.journal, event)
            self.programs.start(submission.command, self.folder.work, folder)
            self.say(f"{cell.title}: started")
        except OSError as error:
            self._running.pop(cell.lane, None)
            self._record(
                running,
                CellJudgement("failed", f"it could not be started: {error.strerror or error}"),
            )
            self.leases.release(submission.lease)

    def _end_all(self, why: str, only_paid: bool = False) -> None:
        """End what runs, in order if it can, and write down that it is to be run again."""
        ending = [
            each
            for each in self._running.values()
            if not only_paid or each.cell.dollars_per_hour is not None
        ]
        for each in ending:
            self.programs.interrupt(self._folder(each.cell))
        deadline = self.programs.now() + _GRACE
        while self.programs.now() < deadline and any(
            self.programs.alive(self._folder(each.cell)) for each in ending
        ):
            self.programs.sleep(_TICK)
        for each in ending:
            with suppress(OSError):
                self.programs.kill(self._folder(each.cell))
            self._tries[each.cell.id] = _TRIES  # not again in this run
            if exit_code(self._folder(each.cell)) == 0:  # it was done just then
                self._finish(each)
            else:
                self._running.pop(each.cell.lane, None)
                with suppress(OSError):  # a full disk must not keep the others from being ended
                    self._record(each, CellJudgement("lost", why))
                self.leases.release(each.submission.lease)

    def _folder(self, cell: Cell) -> CellFolder:
        return self.folder.cell(cell.id)
