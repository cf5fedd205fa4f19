"""The workers of a run: asked for, submitted, training, about to go, gone; and what each of them is to be paid.

Each is a managed job. SkyPilot would recover one that was preempted by itself, with the same type; here it is ended,
and what comes instead is decided again. Every change is asked for in the background: the run does not wait for a
cloud while others are given notice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from stash.core.errors import JobError, UserError
from stash.core.printable import printable_line
from stash.core.units import format_seconds
from stash.spot.members import FleetMember, Members, MemberState
from stash.spot.records.fleets import WorkerType
from stash.spot.rented import tasks
from stash.spot.rented.tasks import RentRequest
from stash.study.backend import JobBackend, Submission
from stash.study.judgement import judge
from stash.study.programs import OVER, named

_REFUSED = ("FAILED_NO_RESOURCE", "FAILED_PRECHECKS")
_SEEKING = "STARTING"
_UNLIKE = re.compile(r"(?i)^.*version mismatch.*$", re.M)
"""What ``ray start`` prints when its own version, or Python's, is not the head's."""
PATIENCE_SECONDS = 600.0
"""That a cloud may take to find a machine. SkyPilot 0.14.1 asks forever (``StrategyExecutor.launch``), and says
STARTING while it does; setting up what it has found is RUNNING.
"""
_LOGS_SECONDS = 60.0
_FAILURES = 2
"""Workers that fail before any has trained, until it is taken to be the job's or its setup's fault."""


@dataclass(kw_only=True)
class RentedWorker(FleetMember):
    """A rented worker, by the name that the head has for it."""

    submission: Submission
    asked: float
    on_demand: bool = False
    patience_seconds: float = PATIENCE_SECONDS
    """That a cloud may take to find its machine."""
    sought: float | None = None
    """Since when a cloud was seen to look for one."""
    adopted: bool = False
    """From an earlier controller: when it joined is not known."""

    def __str__(self) -> str:
        return f"{self.name} ({self.type}{' on demand' if self.on_demand else ''})"


@dataclass
class SpotWorkers:
    """All rented workers."""

    request: RentRequest
    backend: JobBackend
    say: Callable[[str], None]
    cooldown_seconds: float
    """That a type is not asked for after it was revoked or refused, on spot or on demand alike, each by itself."""
    members: Members[RentedWorker] = field(default_factory=Members)
    cooling: dict[tuple[str, bool], float] = field(default_factory=dict)
    """Until when, by type and whether that is on demand."""
    joins: list[float] = field(default_factory=list)
    """Seconds from asking for a worker to its first lease, as measured."""
    changed: bool = False
    """A worker has gone or was refused, and nothing was decided since."""
    _failures: int = 0
    _number: int = 0
    """Of the last one that was asked for."""

    def staying(self, on_demand: bool | None = None) -> dict[str, int]:
        """Count the workers that are counted on, by type; of both kinds unless one is named."""
        return dict(Counter(str(each.type) for each in self.members.staying if on_demand in (None, each.on_demand)))

    def cooling_now(self, on_demand: bool) -> dict[str, float]:
        """Seconds that types still cool down, of one kind."""
        now = self._now
        return {
            name: until - now for (name, kind), until in self.cooling.items() if kind == on_demand and until > now
        }

    @property
    def join_seconds(self) -> float:
        """Seconds from asking for a worker to its training: as measured, else as the pool has it."""
        return sum(self.joins) / len(self.joins) if self.joins else self.request.plan.pool.start_seconds

    @property
    def _now(self) -> float:
        return self.backend.programs.now()

    def rent(self, kind: WorkerType, head: str, on_demand: bool = False, patience: float = PATIENCE_SECONDS) -> None:
        """Ask for one more; returns at once."""
        self._number += 1
        name, submission = f"worker{self._number}", self.request.worker_task(self._number, kind, head, on_demand)
        worker = RentedWorker(
            name, kind.name, MemberState.ASKED, submission=submission, asked=self._now, on_demand=on_demand,
            patience_seconds=patience,
        )  # fmt: skip
        self.members.add(worker)
        self.backend.open(name, submission, tasks.dollars_at_most(kind, on_demand))
        self.backend.start(name, submission)

    def adopt(self, lease: str, head: str) -> None:
        """Take on one that an earlier controller has asked for."""
        name = lease.removeprefix(f"{self.request.name}-")
        task = yaml.safe_load((self.backend.cell(name).path / tasks.TASK).read_text())
        known = {kind.name: kind for kind in self.request.plan.pool.types}
        kind, on_demand = known.get(task["envs"][tasks.TYPE]), not task["resources"]["use_spot"]
        if kind is None:  # of another plan of that name
            self.backend.release(lease)
            return
        numbers = [path.name.removeprefix("worker") for path in self.backend.cell("").path.glob("worker*")]
        self._number = max(self._number, *(int(number) for number in numbers if number.isdecimal()), 0)
        submission = self.request.worker_task(int(name.removeprefix("worker")), kind, head, on_demand)
        state = MemberState.ASKED if self.backend.alive(name) else MemberState.STARTING
        self.members.add(
            RentedWorker(
                name, kind.name, state, self._now, submission=submission, asked=self._now, on_demand=on_demand,
                adopted=True,
            )
        )  # fmt: skip

    def end(self, worker: RentedWorker) -> None:
        """Have it ended, in the background; its lease stays open until a list shows that it is gone."""
        worker.becomes(MemberState.GONE, self._now)
        worker.since = self._now
        self.backend.run(f"end-{worker.name}", worker.submission.release[0])

    def end_all(self) -> None:
        """Have all ended that are not, in the background."""
        for worker in self.members.values():
            if not worker.ended:
                self.end(worker)

    def joined(self, name: str) -> None:
        before = self.members.get(name)
        first = before is not None and before.state is not MemberState.TRAINING and not before.adopted
        worker = self.members.join(name, self._now)
        if worker is not None and first:
            self.joins.append(self._now - worker.asked)

    def noticed(self, name: str, seconds: float) -> None:
        """Record that it will be taken away: from now on it is not counted on."""
        worker = self.members.notice(name, seconds, self._now)
        if worker is not None:
            self.say(f"{worker} will be taken away in {seconds:.0f} s")
            self._cool(worker)

    def withdrawn(self, name: str) -> None:
        """Record that it stays after all; what was rented for it stays, too, and counts in the next decision."""
        if self.members.withdraw(name, self._now) is not None:
            self.say(f"{name} stays: its notice was withdrawn")

    def lost(self, name: str, why: str) -> None:
        worker = self.members.get(name)
        if worker is None or worker.ended:
            return
        if worker.stays:
            self.say(f"{worker} {why}")
            self._cool(worker)
        self.end(worker)

    def _cool(self, worker: RentedWorker) -> None:
        self.cooling[str(worker.type), worker.on_demand] = self._now + self.cooldown_seconds
        self.changed = True

    def look(self) -> None:
        """Whose launch has ended, and whose time is over."""
        for worker in list(self.members.values()):
            if worker.state is MemberState.ASKED and not self.backend.alive(worker.name):
                code = self.backend.code(worker.name)
                if code == 0:
                    worker.becomes(MemberState.STARTING, self._now)
                else:
                    why = judge(self.backend.cell(worker.name), worker.submission, code).why
                    self.lost(worker.name, f"was refused: {why}")
            elif worker.state is MemberState.LEAVING and worker.deadline is not None and self._now > worker.deadline:
                self.end(worker)

    def listed(self, jobs: list[dict[str, Any]], began: float) -> None:
        """What a list of managed jobs, asked for at ``began``, says of each."""
        newest = {named(job): job for job in sorted(jobs, key=lambda job: job.get("job_id") or 0)}
        for worker in list(self.members.values()):
            if worker.state is MemberState.ASKED or worker.since > began:
                continue  # the list may be older than what it is asked about
            status = newest.get(worker.submission.lease, {}).get("status")
            if status is None or status in OVER:
                self.backend.seen_gone(worker.submission.lease)
            elif worker.ended and status != "CANCELLING":
                self.end(worker)  # it was asked to, and has not done so
            if worker.ended:
                continue
            if status in _REFUSED:
                self.lost(worker.name, "cannot be had now")
            elif status == _SEEKING and worker.state is MemberState.STARTING:
                worker.sought = began if worker.sought is None else worker.sought
                if began - worker.sought >= worker.patience_seconds:
                    self.lost(worker.name, f"could not be had within {format_seconds(began - worker.asked)}")
            elif status in OVER and str(status).startswith("FAILED"):
                self._failed(worker)
            elif status is None or status in OVER or status == "RECOVERING":
                self.lost(worker.name, "is gone")

    def _failed(self, worker: RentedWorker) -> None:
        """Its program ended by itself, which is no revocation; raises what explains it."""
        printed = self.backend.call(tasks.logs(worker.submission.lease), _LOGS_SECONDS).output
        unlike = _UNLIKE.search(printed)
        if unlike is not None:
            raise UserError(
                f"{worker.name} has another Ray or Python than the server: {printable_line(unlike[0].strip(), 200)}; "
                "use images with the same Python for all machines, and the same command again"
            )
        last = printable_line((printed.strip().splitlines() or ["it printed nothing"])[-1], 200)
        self._failures += 1
        if self._failures >= _FAILURES and not any(each.joined for each in self.members.values()):
            raise JobError(
                f"workers fail before they train: {last}; `sky jobs logs --name {worker.submission.lease}`"
            )
        self.lost(worker.name, f"failed: {last}")
