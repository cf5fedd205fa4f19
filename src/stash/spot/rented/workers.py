"""The workers of a run: asked for, submitted, training, about to go, gone; and what each of them is to be paid.

Each is a managed job. SkyPilot would recover one that was preempted by itself, with the same type; here it is ended,
and what comes instead is decided anew. Every change is asked for in the background: nobody waits for a cloud while
others are given notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from stash.core.errors import JobError, UserError
from stash.core.printable import printable_line
from stash.core.units import format_seconds
from stash.spot.records.fleets import WorkerType
from stash.spot.rented import tasks
from stash.spot.rented.tasks import RentRequest
from stash.study.judgement import exit_code, judge
from stash.study.leases import Leases
from stash.study.programs import OVER, Programs, named
from stash.study.study_folder import CellFolder
from stash.study.submission import Submission

WorkerState = Literal["asked", "submitted", "training", "leaving", "gone"]
_REFUSED = ("FAILED_NO_RESOURCE", "FAILED_PRECHECKS")
_SEEKING = "STARTING"
_UNLIKE = re.compile(r"(?i)^.*version mismatch.*$", re.M)
"""What ``ray start`` says when its own version, or Python's, is not the head's."""
PATIENCE_SECONDS = 600.0
"""That a cloud may take to find a machine. SkyPilot 0.14.1 asks forever (``StrategyExecutor.launch``), and says
STARTING while it does; setting up what it has found is RUNNING.
"""
_LOGS_SECONDS = 60.0
_FAILURES = 2
"""Workers that fail before any has trained, until it is taken to be the job's or its setup's fault."""


@dataclass
class RentedWorker:
    """One of them."""

    name: str
    """As the head calls it."""
    kind: WorkerType
    submission: Submission
    asked: float
    on_demand: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    """That a cloud may take to find its machine."""
    sought: float | None = None
    """Since when a cloud was seen to look for one."""
    state: WorkerState = "asked"
    since: float = 0.0
    """When it came into that state."""
    deadline: float | None = None
    """Of one that is leaving."""
    adopted: bool = False
    """From an earlier controller: when it joined is not known."""

    def becomes(self, state: WorkerState, now: float) -> None:
        self.state, self.since = state, now

    @property
    def stays(self) -> bool:
        return self.state in ("asked", "submitted", "training")

    def __str__(self) -> str:
        return f"{self.name} ({self.kind.name}{' on demand' if self.on_demand else ''})"


@dataclass
class SpotWorkers:
    """All of them, by name."""

    request: RentRequest
    programs: Programs
    leases: Leases
    say: Callable[[str], None]
    cooldown_seconds: float
    """That a type is not asked for after it was revoked or refused, on spot or on demand alike, each by itself."""
    all: dict[str, RentedWorker] = field(default_factory=dict)
    cooling: dict[tuple[str, bool], float] = field(default_factory=dict)
    """Until when, by type and whether that is on demand."""
    joins: list[float] = field(default_factory=list)
    """Seconds from asking for a worker to its first lease, as measured."""
    changed: bool = False
    """Somebody has gone or was refused, and nothing was decided since."""
    _failures: int = 0
    _number: int = 0
    """Of the last one that was asked for."""

    def staying(self, on_demand: bool | None = None) -> dict[str, int]:
        """Those that are counted on, by type; of both kinds unless one is named."""
        those = (worker for worker in self.all.values() if worker.stays and on_demand in (None, worker.on_demand))
        return dict(Counter(worker.kind.name for worker in those))

    def cooling_now(self, on_demand: bool) -> dict[str, float]:
        """Seconds that types still cool down, of one kind."""
        now = self.programs.now()
        return {
            name: until - now for (name, kind), until in self.cooling.items() if kind == on_demand and until > now
        }

    # What is done ------------------------------------------------------------------------------------------------

    def rent(self, kind: WorkerType, head: str, on_demand: bool = False, patience: float = PATIENCE_SECONDS) -> None:
        """Ask for one more; returns at once."""
        self._number += 1
        number = self._number
        submission = self.request.worker_task(number, kind, head, on_demand)
        worker = RentedWorker(f"worker{number}", kind, submission, self.programs.now(), on_demand, patience)
        self.all[worker.name] = worker
        begin(self.request, self.programs, self.leases, submission, tasks.dollars_at_most(kind, on_demand))

    def adopt(self, name: str, head: str) -> None:
        """Take on one that an earlier controller has asked for."""
        short = name.removeprefix(f"{self.request.name}-")
        task = yaml.safe_load((self.request.folder.cell(short).path / tasks.TASK).read_text())
        known = {kind.name: kind for kind in self.request.plan.pool.types}
        kind, on_demand = known.get(task["envs"][tasks.TYPE]), not task["resources"]["use_spot"]
        if kind is None:  # of another plan of that name
            self.leases.release(name)
            return
        submission = self.request.worker_task(int(short.removeprefix("worker")), kind, head, on_demand)
        self._number = max(self._number, *map(_number, self.request.folder.cell("").path.glob("worker*")))
        now, asking = self.programs.now(), self.programs.alive(self.request.folder.cell(short))
        state: WorkerState = "asked" if asking else "submitted"
        self.all[short] = RentedWorker(short, kind, submission, now, on_demand, state=state, since=now, adopted=True)

    def end(self, worker: RentedWorker) -> None:
        """Have it ended, in the background; its lease stays open until a list shows that it is gone."""
        worker.becomes("gone", self.programs.now())
        cell = self.request.folder.cell(f"end-{worker.name}")
        cell.path.mkdir(parents=True, exist_ok=True)
        self.programs.start(worker.submission.release[0], self.request.folder.work, cell)

    # What is heard -------------------------------------------------------------------------------------------------

    def joined(self, name: str) -> None:
        worker = self.all.get(name)
        if worker is not None and worker.stays:
            if worker.state != "training" and not worker.adopted:
                self.joins.append(self.programs.now() - worker.asked)
            worker.becomes("training", self.programs.now())

    def noticed(self, name: str, seconds: float) -> None:
        """It will be taken away: from now on it is not counted on."""
        worker = self.all.get(name)
        if worker is not None and worker.stays:
            worker.becomes("leaving", self.programs.now())
            worker.deadline = self.programs.now() + seconds
            self.say(f"{worker} will be taken away in {seconds:.0f} s")
            self._cool(worker)

    def withdrawn(self, name: str) -> None:
        """It stays after all; what was rented for it stays, too, and is told apart by the next decision."""
        worker = self.all.get(name)
        if worker is not None and worker.state == "leaving":
            worker.becomes("training", self.programs.now())
            self.say(f"{name} stays: its notice was withdrawn")

    def lost(self, name: str, why: str) -> None:
        worker = self.all.get(name)
        if worker is None or worker.state == "gone":
            return
        if worker.state != "leaving":
            self.say(f"{worker} {why}")
            self._cool(worker)
        self.end(worker)

    def _cool(self, worker: RentedWorker) -> None:
        self.cooling[worker.kind.name, worker.on_demand] = self.programs.now() + self.cooldown_seconds
        self.changed = True

    # What is seen --------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Whose launch has ended, and whose time is over."""
        for worker in list(self.all.values()):
            if worker.state == "asked" and not self.programs.alive(self._cell(worker)):
                code = exit_code(self._cell(worker))
                if code == 0:
                    worker.becomes("submitted", self.programs.now())
                else:
                    self.lost(worker.name, f"was refused: {judge(self._cell(worker), worker.submission, code).why}")
            elif worker.state == "leaving" and worker.deadline is not None and self.programs.now() > worker.deadline:
                self.end(worker)

    def listed(self, jobs: list[dict[str, Any]], began: float) -> None:
        """What a list of managed jobs, asked for at ``began``, says of each."""
        newest = {named(job): job for job in sorted(jobs, key=lambda job: job.get("job_id") or 0)}
        for worker in list(self.all.values()):
            if worker.state == "asked" or worker.since > began:
                continue  # the list may be older than what it is asked about
            status = newest.get(worker.submission.lease, {}).get("status")
            if status is None or status in OVER:
                self.leases.seen_gone(worker.submission.lease)
            elif worker.state == "gone" and status != "CANCELLING":
                self.end(worker)  # it was asked to, and has not heard
            if worker.state == "gone":
                continue
            if status in _REFUSED:
                self.lost(worker.name, "cannot be had now")
            elif status == _SEEKING and worker.state == "submitted":
                self._sought(worker, began)
            elif status in OVER and str(status).startswith("FAILED"):
                self._failed(worker)
            elif status is None or status in OVER or status == "RECOVERING":
                self.lost(worker.name, "is gone")

    def _sought(self, worker: RentedWorker, now: float) -> None:
        """A cloud has no machine for it yet."""
        worker.sought = now if worker.sought is None else worker.sought
        if now - worker.sought >= worker.patience_seconds:
            self.lost(worker.name, f"could not be had within {format_seconds(now - worker.asked)}")

    def _failed(self, worker: RentedWorker) -> None:
        """Its program ended by itself, which is nobody's revocation; raises what explains it."""
        printed = self.programs.call(tasks.logs(worker.submission.lease), _LOGS_SECONDS).output
        unlike = _UNLIKE.search(printed)
        if unlike is not None:
            raise UserError(
                f"{worker.name} has another Ray or Python than the server: {printable_line(unlike[0].strip(), 200)}; "
                "use images with the same Python for all machines, and the same command again"
            )
        said = printable_line((printed.strip().splitlines() or ["it printed nothing"])[-1], 200)
        self._failures += 1
        if self._failures >= _FAILURES and not self.joins:
            raise JobError(
                f"workers fail before they train: {said}; `sky jobs logs --name {worker.submission.lease}`"
            )
        self.lost(worker.name, f"failed: {said}")

    def _cell(self, worker: RentedWorker) -> CellFolder:
        return self.request.folder.cell(worker.name)


def _number(cell: Path) -> int:
    digits = cell.name.removeprefix("worker")
    return int(digits) if digits.isdecimal() else 0


def begin(
    request: RentRequest, programs: Programs, leases: Leases, submission: Submission, dollars_per_hour: float
) -> None:
    """Write down what is about to be rented, then ask for it."""
    cell = request.folder.cell(submission.lane)
    for stale in (cell.status, cell.process):
        stale.unlink(missing_ok=True)
    submission.put(request.folder, cell)
    leases.open(submission, dollars_per_hour)
    programs.start(submission.command, request.folder.work, cell)
