"""Runs the cells of a study, in order, one at a time in each lane, until all are done or a limit is reached.

It only starts, looks and ends. Everything it knows is in the journal before it is acted on, so a controller that is
killed is followed by one that goes on: what still runs is waited for, what ended meanwhile is taken, what was rented
is used or released. Its clock and its programs are given, and can be made of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from stash.core.errors import StashError
from stash.core.interrupts import follow_requests, postponed
from stash.core.units import format_seconds
from stash.study.backend import JobBackend, OpenLease, Submission
from stash.study.cells import Cell
from stash.study.judgement import CellJudgement, fetch, judge, waiting, write_cost
from stash.study.status import HOUR, CellEstimate, CellStanding, lease_start, total
from stash.study.study_folder import StudyEvent, StudyFolder

_TICK = 0.5
_GRACE = 30.0
"""Seconds to end in order, until it is done by force: a profile is saved within them."""
_TRIES = 3
"""Of a cell whose machines were taken away, within one run."""
_LOOK = 20.0
"""Seconds between two looks at whether what waits will ever begin."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of one run."""

    not_started: tuple[str, ...]
    """Why cells were not started, a sentence each."""
    left: tuple[str, ...]
    """What may still be running, a sentence each."""
    dollars: float
    """Of the whole study."""


@dataclass
class _Running:
    cell: Cell
    submission: Submission
    began: float
    looked: float
    """When it was last asked whether it will ever begin."""
    begun: bool = False
    """Whether it was seen to have: should it be put back into the queue, what it took before was paid for."""


@dataclass
class StudyController:
    """One run of a study."""

    backend: JobBackend
    describe: Callable[[Cell, StudyFolder], Submission]
    keep: Callable[[Cell], str]
    """Puts a finished cell's profile into the store; its name there. Raises StashError."""
    max_dollars: float | None
    """A hard stop for the whole study, earlier runs and what is running included; ``None``: none."""
    estimates: Mapping[str, CellEstimate]
    say: Callable[[str], None]
    _running: dict[str, _Running] = field(default_factory=dict)
    """By lane."""
    _pending: list[Cell] = field(default_factory=list)
    _submissions: dict[str, Submission] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _refused: dict[str, None] = field(default_factory=dict)
    _too_large: dict[object, int] = field(default_factory=dict)
    _well: set[str] = field(default_factory=set)
    """Places where a cell is done."""
    _broken: dict[str, str] = field(default_factory=dict)
    """Places whose first cell failed, and why."""

    def run(
        self,
        cells: Sequence[Cell],
        standings: Mapping[str, CellStanding],
        open_leases: Sequence[OpenLease] = (),
    ) -> RunOutcome:
        """Run what is to run, in order; KeyboardInterrupt is raised on once all has ended and is released."""
        self._pending = [cell for cell in cells if standings[cell.id].state == "to run"]
        self._well = {cell.place.name for cell in cells if standings[cell.id].state == "done"}
        try:
            self._take_on(cells, open_leases)
            while True:
                follow_requests()
                for lane, running in list(self._running.items()):
                    if self.backend.alive(running.cell.id):
                        self._look(lane, running)
                    else:
                        self._finish(lane, running)
                self._enforce()
                self._start()
                if not self._running:
                    break
                self.backend.programs.sleep(_TICK)
        except BaseException:
            try:
                self._end_all("it was interrupted")
            finally:
                self.backend.release_all()
                for sentence in self.backend.left:
                    self.say(sentence)
            raise
        self.backend.release_all()
        return RunOutcome(tuple(self._refused), tuple(self.backend.left), self.backend.dollars)

    def _take_on(self, cells: Sequence[Cell], open_leases: Sequence[OpenLease]) -> None:
        known = {cell.id: cell for cell in cells}
        for lease in open_leases:
            self.backend.adopt(lease)
            cell = known.get(lease.cell)
            if cell is None:  # nothing runs there, or a cell that the study has no more
                if lease.cell:
                    self.backend.kill(lease.cell)
                if not any(self._submission(other).lease == lease.name for other in self._pending):
                    self.backend.release(lease.name)
                continue
            submission = self._submission(cell)
            if submission.lane in self._running:  # two of one lane: the study was changed; one can be waited for
                self.backend.kill(cell.id)
                self.backend.release(lease.name)
                continue
            self._pending = [other for other in self._pending if other.id != cell.id]
            self._running[submission.lane] = _Running(cell, submission, lease.began, self._now)
            self.say(f"{cell.title}: still running, or ended meanwhile; taken on")

    def _look(self, lane: str, running: _Running) -> None:
        """A cell that waits in a queue costs nothing yet; end one that waits for what will never come."""
        if self._now - running.looked < _LOOK:
            return
        running.looked = self._now
        waits, why = waiting(self.backend.programs, running.submission)
        running.begun = running.begun or not waits
        if not running.begun:
            running.began = self._now
            self.backend.waits(running.submission.lease)
        if why is None:
            return
        self.backend.kill(running.cell.id)
        with postponed():
            self._running.pop(lane, None)
            self._record(
                running, CellJudgement("failed", f"{running.submission.command[0]}: it will never begin: {why}")
            )
        self.backend.release(running.submission.lease)

    def _finish(self, lane: str, running: _Running) -> None:
        """Take what a cell has left; until that is done it counts as running, should somebody interrupt."""
        cell, submission = running.cell, running.submission
        code, unfetched = self.backend.code(cell.id), None
        if code == 0:
            unfetched = fetch(self.backend.programs, submission)
        found = judge(self.backend.cell(cell.id), submission, code)
        if unfetched is not None and found.ending == "failed":
            found = CellJudgement("failed", f"its profile could not be fetched: {unfetched}")
        with postponed():  # from here on it is done whole, or what was measured would be measured again
            self._running.pop(lane, None)
            self._record(running, found)
        # What is left of a lost cell may still be at work on what was rented for it.
        if found.ending == "lost" or self._next_lease(submission.lane) != submission.lease:
            self.backend.release(submission.lease)

    def _record(self, running: _Running, found: CellJudgement) -> None:
        cell, now = running.cell, self._now
        artefact, note = "", ""
        seconds, price = max(0.0, now - running.began), cell.dollars_per_hour
        dollars = None if price is None else price * seconds / HOUR
        if found.ending == "done":
            try:
                if price is not None:
                    write_cost(self.backend.cell(cell.id).profile, seconds, price, cell.place.price_source)
                artefact = self.keep(cell)
            except StashError as error:
                note = f" (its profile stays in the cell's folder: {error})"
        self.backend.write(
            StudyEvent(
                at=now, what="ended", lease=running.submission.lease, cell=cell.id, ending=found.ending,
                why=found.why, seconds=seconds, dollars=dollars, artefact=artefact,
            )
        )  # fmt: skip
        cost = "" if dollars is None else f", ${dollars:.2f}"
        why = f": {found.why}" if found.why else ""
        self._consequences(cell, found)
        self.say(f"{cell.title}: {found.ending} after {seconds:.0f} s{cost}{why}{note}{self._left()}")

    def _left(self) -> str:
        """What is still ahead, what runs included, as if nothing of that had been done."""
        ahead = [*(running.cell for running in self._running.values()), *self._pending]
        if not ahead:
            return ""
        takes = total(ahead, self.estimates, {cell.id: self._submission(cell).lane for cell in ahead})
        money = "" if takes.dollars is None else f" and ${takes.dollars:,.2f}"
        return f" ({takes.cells} left, about {format_seconds(takes.seconds)}{money})"

    def _consequences(self, cell: Cell, found: CellJudgement) -> None:
        if found.ending == "done":
            self._well.add(cell.place.name)
        elif found.ending == "out of memory":
            if cell.batch is not None:
                self._too_large[cell.alike] = min(cell.batch, self._too_large.get(cell.alike, cell.batch))
        elif found.ending == "lost":
            if self._tries.get(cell.id, 0) < _TRIES:
                self._pending.insert(0, cell)
            else:
                self._refused.setdefault(f"{cell.title}: {found.why}; the same command runs it again")
        elif cell.place.name not in self._well:
            self._broken.setdefault(cell.place.name, found.why)

    def _next_lease(self, lane: str) -> str | None:
        following = next((cell for cell in self._pending if self._submission(cell).lane == lane), None)
        if following is None or self._skipped(following) is not None:
            return None
        return self._submission(following).lease

    def _start(self) -> None:
        for cell in list(self._pending):
            submission, place = self._submission(cell), cell.place.name
            if submission.lane in self._running:
                continue
            if place not in self._well and any(each.cell.place.name == place for each in self._running.values()):
                continue  # it has yet to be seen if anything works there
            why = self._skipped(cell) or self._beyond(cell, submission)
            self._pending.remove(cell)
            if why is not None:
                self._refused.setdefault(why)
                if submission.lease in self.backend.leases and self._next_lease(submission.lane) != submission.lease:
                    self.backend.release(submission.lease)
                continue
            self._begin(cell, submission)

    def _skipped(self, cell: Cell) -> str | None:
        """Why this cell need not be tried, by what was seen of others in this run."""
        least = self._too_large.get(cell.alike)
        if least is not None and cell.batch is not None and cell.batch >= least:
            return (
                f"{cell.workload} on {cell.place.name}: batches from {least} on were not tried, it ran out of memory"
            )
        if cell.place.name in self._broken:
            return f"{cell.place.name}: nothing more was tried after its first cell failed"
        return None

    def _beyond(self, cell: Cell, submission: Submission) -> str | None:
        """Why this cell is not started: with it, the limit would be passed."""
        price, dollars = cell.dollars_per_hour, self.max_dollars
        if price is None or dollars is None:
            return None
        start = 0.0 if submission.lease in self.backend.leases else lease_start(cell)
        seconds = start + self.estimates[cell.id].seconds
        now, to_come = self._now, 0.0  # what runs now will still cost, as estimated
        for running in self._running.values():
            whole = self.estimates[running.cell.id].dollars
            if whole is not None:
                until_now = (running.cell.dollars_per_hour or 0.0) * (now - running.began) / HOUR
                to_come += max(0.0, whole - until_now)
        if self.backend.dollars + to_come + price * seconds / HOUR > dollars:
            return f"--max-dollars {dollars:g} leaves no money for more on {cell.place.name}"
        return None

    def _begin(self, cell: Cell, submission: Submission) -> None:
        now = self._now
        running = _Running(cell, submission, now, now)
        program = submission.command[0]
        if not self.backend.programs.has(program):
            self._record(running, CellJudgement("failed", f"there is no program {program!r} on PATH"))
            return
        self._tries[cell.id] = self._tries.get(cell.id, 0) + 1
        try:
            self.backend.open(cell.id, submission, cell.dollars_per_hour)
            self._running[submission.lane] = running  # before it does: who interrupts ends whatever has begun
            self.backend.write(StudyEvent(at=now, what="started", lease=submission.lease, cell=cell.id))
            self.backend.start(cell.id, submission)
            self.say(f"{cell.title}: started")
        except OSError as error:
            self._running.pop(submission.lane, None)
            self._record(running, CellJudgement("failed", f"it could not be started: {error.strerror or error}"))
            self.backend.release(submission.lease)

    def _enforce(self) -> None:
        """End what runs and is paid for once the limit is passed: estimates may be wrong, limits hold."""
        dollars = self.max_dollars
        if dollars is not None and self.backend.dollars >= dollars:
            paid = [lane for lane, each in self._running.items() if each.cell.dollars_per_hour is not None]
            self._end_all(f"--max-dollars {dollars:g} was reached", paid)

    def _end_all(self, why: str, lanes: Sequence[str] | None = None) -> None:
        """End what runs in these lanes (all), in order if it can, and write down that it is to be run again."""
        ending = {lane: each for lane, each in self._running.items() if lanes is None or lane in lanes}
        for each in ending.values():
            self.backend.programs.interrupt(self.backend.cell(each.cell.id))
        deadline = self._now + _GRACE
        while self._now < deadline and any(self.backend.alive(each.cell.id) for each in ending.values()):
            self.backend.programs.sleep(_TICK)
        for lane, each in ending.items():
            with suppress(OSError):
                self.backend.kill(each.cell.id)
            self._tries[each.cell.id] = _TRIES  # not again in this run
            if self.backend.code(each.cell.id) == 0:  # it was done just then
                self._finish(lane, each)
            else:
                self._running.pop(lane, None)
                with suppress(OSError):  # a full disk must not keep the others from being ended
                    self._record(each, CellJudgement("lost", why))
                self.backend.release(each.submission.lease)

    @property
    def _now(self) -> float:
        return self.backend.programs.now()

    def _submission(self, cell: Cell) -> Submission:
        if cell.id not in self._submissions:
            self._submissions[cell.id] = self.describe(cell, self.backend.folder)
        return self._submissions[cell.id]
