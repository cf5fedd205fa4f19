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
from stash.study.cells import Cell
from stash.study.judgement import CellJudgement, exit_code, fetch, hopeless, judge, write_cost
from stash.study.leases import Leases
from stash.study.programs import Programs
from stash.study.status import HOUR, CellEstimate, CellStanding, OpenLease, lease_start, total
from stash.study.study_folder import StudyEvent, StudyFolder
from stash.study.submission import Submission

_TICK = 0.5
_GRACE = 30.0
"""Seconds to end in order, until it is done by force: a profile is saved within them."""
_TRIES = 3
"""Of a cell whose machines were taken away, within one run."""
_LOOK = 20.0
"""Seconds between two looks at whether what waits will ever begin."""


@dataclass(frozen=True)
class RunLimits:
    """Hard stops, which count what is running; ``None``: none."""

    dollars: float | None = None
    """Of the whole study, earlier runs included."""
    seconds: float | None = None
    """Of this run."""


@dataclass(frozen=True)
class RunOutcome:
    """What became of one run."""

    ended: int
    """Cells, of whatever ending."""
    failed: int
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


@dataclass
class StudyController:
    """One run of a study."""

    folder: StudyFolder
    programs: Programs
    describe: Callable[[Cell, StudyFolder], Submission]
    write: Callable[[StudyEvent], None]
    keep: Callable[[Cell], str]
    """Puts a finished cell's profile into the store; its name there. Raises StashError."""
    limits: RunLimits
    estimates: Mapping[str, CellEstimate]
    say: Callable[[str], None]
    leases: Leases = field(init=False)
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
    _ended: int = 0
    _failed: int = 0

    def __post_init__(self) -> None:
        self.leases = Leases(self.programs, self.write)

    def run(
        self,
        cells: Sequence[Cell],
        standings: Mapping[str, CellStanding],
        open_leases: Sequence[OpenLease] = (),
        spent: float = 0.0,
    ) -> RunOutcome:
        """Run what is to run, in order; KeyboardInterrupt is raised on once all has ended and is released."""
        self.leases.spent = spent
        self._pending = [cell for cell in cells if standings[cell.id].state == "to run"]
        self._well = {cell.place.name for cell in cells if standings[cell.id].state == "done"}
        began = self.programs.now()
        try:
            self._take_on(cells, open_leases)
            while True:
                follow_requests()
                self._reap()
                self._enforce(began)
                self._start(began)
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
        return RunOutcome(
            self._ended, self._failed, tuple(self._refused), tuple(self.leases.left), self.leases.dollars
        )

    # What an earlier controller left -------------------------------------------------------------------------

    def _take_on(self, cells: Sequence[Cell], open_leases: Sequence[OpenLease]) -> None:
        known = {cell.id: cell for cell in cells}
        for lease in open_leases:
            self.leases.adopt(lease)
            cell = known.get(lease.cell)
            if cell is None:  # nothing runs there, or a cell that the study has no more
                if lease.cell:
                    self.programs.kill(self.folder.cell(lease.cell))
                if not any(self._submission(other).lease == lease.name for other in self._pending):
                    self.leases.release(lease.name)
                continue
            submission = self._submission(cell)
            if submission.lane in self._running:  # two of one lane: the study was changed; one can be waited for
                self.programs.kill(self.folder.cell(cell.id))
                self.leases.release(lease.name)
                continue
            self._pending = [other for other in self._pending if other.id != cell.id]
            self._running[submission.lane] = _Running(cell, submission, lease.began, self.programs.now())
            self.say(f"{cell.title}: still running, or ended meanwhile; taken on")

    # What has ended -------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        for lane, running in list(self._running.items()):
            if not self.programs.alive(self.folder.cell(running.cell.id)):
                self._finish(lane, running)
            else:
                self._look(lane, running)

    def _look(self, lane: str, running: _Running) -> None:
        """End a cell that waits for what will never come."""
        if self.programs.now() - running.looked < _LOOK:
            return
        running.looked = self.programs.now()
        why = hopeless(self.programs, running.submission)
        if why is None:
            return
        self.programs.kill(self.folder.cell(running.cell.id))
        with postponed():
            self._running.pop(lane, None)
            self._record(
                running, CellJudgement("failed", f"{running.submission.command[0]}: it will never begin: {why}")
            )
        self.leases.release(running.submission.lease)

    def _finish(self, lane: str, running: _Running) -> None:
        """Take what a cell has left; until that is done it counts as running, should somebody interrupt."""
        cell, submission = running.cell, running.submission
        own = self.folder.cell(cell.id)
        code, unfetched = exit_code(own), None
        if code == 0:
            unfetched = fetch(self.programs, submission)
        found = judge(own, submission, code)
        if unfetched is not None and found.ending == "failed":
            found = CellJudgement("failed", f"its profile could not be fetched: {unfetched}")
        with postponed():  # from here on it is done whole, or what was measured would be measured again
            self._running.pop(lane, None)
            self._record(running, found)
        # What is left of a lost cell may still be at work on what was rented for it.
        if found.ending == "lost" or self._next_lease(submission.lane) != submission.lease:
            self.leases.release(submission.lease)

    def _record(self, running: _Running, found: CellJudgement) -> None:
        cell, now = running.cell, self.programs.now()
        artefact, note = "", ""
        seconds, price = max(0.0, now - running.began), cell.dollars_per_hour
        dollars = None if price is None else price * seconds / HOUR
        if found.ending == "done":
            try:
                if price is not None:
                    write_cost(self.folder.cell(cell.id).profile, seconds, price, cell.place.price_source)
                artefact = self.keep(cell)
            except StashError as error:
                note = f" (its profile stays in the cell's folder: {error})"
        self.write(
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
        self._ended += 1
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
        else:
            self._failed += 1
            if cell.place.name not in self._well:
                self._broken.setdefault(cell.place.name, found.why)

    # What comes next ------------------------------------------------------------------------------------------

    def _next_lease(self, lane: str) -> str | None:
        following = next((cell for cell in self._pending if self._submission(cell).lane == lane), None)
        if following is None or self._skipped(following) is not None:
            return None
        return self._submission(following).lease

    def _start(self, began: float) -> None:
        for cell in list(self._pending):
            submission = self._submission(cell)
            if submission.lane in self._running or self._awaited(cell):
                continue
            why = self._skipped(cell) or self._beyond(cell, submission, began)
            self._pending.remove(cell)
            if why is not None:
                self._refused.setdefault(why)
                if self.leases.is_open(submission.lease) and self._next_lease(submission.lane) != submission.lease:
                    self.leases.release(submission.lease)
                continue
            self._begin(cell, submission)

    def _awaited(self, cell: Cell) -> bool:
        """Whether it has yet to be seen if anything works at this place."""
        place = cell.place.name
        return place not in self._well and any(each.cell.place.name == place for each in self._running.values())

    def _skipped(self, cell: Cell) -> str | None:
        """Why this cell need not be tried, by what was seen of others in this run."""
        least = self._too_large.get(cell.alike)
        if least is not None and cell.batch is not None and cell.batch >= least:
            return f"{cell.workload} on {cell.place.name}: batches above {least} were not tried, it ran out of memory"
        if cell.place.name in self._broken:
            return f"{cell.place.name}: nothing more was tried after its first cell failed"
        return None

    def _beyond(self, cell: Cell, submission: Submission, began: float) -> str | None:
        """Why this cell is not started: with it, a limit would be passed."""
        estimate = self.estimates[cell.id]
        start = 0.0 if self.leases.is_open(submission.lease) else lease_start(cell)
        seconds, most = start + estimate.seconds, self.limits.seconds
        if most is not None and self.programs.now() - began + seconds > most:
            return f"--max-hours {most / HOUR:g} leaves no time for more"
        price, dollars = cell.dollars_per_hour, self.limits.dollars
        if price is None or dollars is None:
            return None
        if self.leases.dollars + self._to_come() + price * seconds / HOUR > dollars:
            return f"--max-cost {dollars:g} leaves no money for more on {cell.place.name}"
        return None

    def _to_come(self) -> float:
        """Dollars that what runs now will still cost, as estimated."""
        now, left = self.programs.now(), 0.0
        for running in self._running.values():
            whole = self.estimates[running.cell.id].dollars
            if whole is not None:
                until_now = (running.cell.dollars_per_hour or 0.0) * (now - running.began) / HOUR
                left += max(0.0, whole - until_now)
        return left

    def _begin(self, cell: Cell, submission: Submission) -> None:
        own, now = self.folder.cell(cell.id), self.programs.now()
        running = _Running(cell, submission, now, now)
        program = submission.command[0]
        if not self.programs.has(program):
            self._record(running, CellJudgement("failed", f"there is no program {program!r} on PATH"))
            return
        self._tries[cell.id] = self._tries.get(cell.id, 0) + 1
        try:
            for stale in (own.profile, own.status, own.process):  # before the journal says that there is a new try
                stale.unlink(missing_ok=True)
            submission.put(self.folder, own)
            self.leases.open(submission, cell.dollars_per_hour)
            self._running[submission.lane] = running  # before it does: who interrupts ends whatever has begun
            self.write(StudyEvent(at=now, what="started", lease=submission.lease, cell=cell.id))
            self.programs.start(submission.command, self.folder.work, own)
            self.say(f"{cell.title}: started")
        except OSError as error:
            self._running.pop(submission.lane, None)
            self._record(running, CellJudgement("failed", f"it could not be started: {error.strerror or error}"))
            self.leases.release(submission.lease)

    # Ends ----------------------------------------------------------------------------------------------------

    def _enforce(self, began: float) -> None:
        """End what runs once a limit is passed: estimates may be wrong, limits hold."""
        seconds, dollars = self.limits.seconds, self.limits.dollars
        if seconds is not None and self.programs.now() - began >= seconds:
            self._end_all(f"--max-hours {seconds / HOUR:g} was reached")
        elif dollars is not None and self.leases.dollars >= dollars:
            paid = [lane for lane, each in self._running.items() if each.cell.dollars_per_hour is not None]
            self._end_all(f"--max-cost {dollars:g} was reached", paid)

    def _end_all(self, why: str, lanes: Sequence[str] | None = None) -> None:
        """End what runs in these lanes (all), in order if it can, and write down that it is to be run again."""
        ending = {lane: each for lane, each in self._running.items() if lanes is None or lane in lanes}
        for each in ending.values():
            self.programs.interrupt(self.folder.cell(each.cell.id))
        deadline = self.programs.now() + _GRACE
        while self.programs.now() < deadline and any(
            self.programs.alive(self.folder.cell(each.cell.id)) for each in ending.values()
        ):
            self.programs.sleep(_TICK)
        for lane, each in ending.items():
            own = self.folder.cell(each.cell.id)
            with suppress(OSError):
                self.programs.kill(own)
            self._tries[each.cell.id] = _TRIES  # not again in this run
            if exit_code(own) == 0:  # it was done just then
                self._finish(lane, each)
            else:
                self._running.pop(lane, None)
                with suppress(OSError):  # a full disk must not keep the others from being ended
                    self._record(each, CellJudgement("lost", why))
                self.leases.release(each.submission.lease)

    def _submission(self, cell: Cell) -> Submission:
        if cell.id not in self._submissions:
            self._submissions[cell.id] = self.describe(cell, self.folder)
        return self._submissions[cell.id]
