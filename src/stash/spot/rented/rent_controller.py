"""Runs a fleet plan to its end: rents, follows, decides anew whenever somebody goes, and ends all of it.

It trains nothing: that goes on on the machines for as long as anybody is left. What is rented is in the
journal first, so a controller that is killed is followed by one that goes on. Its clock and its programs are given,
and can be made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stash.core.errors import JobError, StashError, UserError
from stash.core.interrupts import follow_requests
from stash.core.printable import printable_line
from stash.core.units import format_seconds
from stash.spot.choose.fleet_costs import HOUR
from stash.spot.rented import tasks
from stash.spot.rented.tasks import RentRequest
from stash.spot.rented.training_progress import ToldLines, TrainingSight
from stash.spot.rented.workers import PATIENCE_SECONDS, SpotWorkers, begin
from stash.study.judgement import exit_code, judge
from stash.study.leases import Leases
from stash.study.programs import Programs, is_gone, records
from stash.study.status import OpenLease
from stash.study.study_folder import CellFolder, StudyEvent
from stash.study.submission import ProgramWords

CHECK_SECONDS = 60.0
"""Between two looks at what is rented and how far the training is."""
COOLDOWN_SECONDS = 1200.0
"""Of a type that was revoked or refused."""
ENDING_SECONDS = 300.0
"""That everything may still cost once it is told to end: to save, to fetch, to be taken down."""
_TICK = 0.5
_ADDRESS_SECONDS = 600.0
"""Until the head's Ray has to be up, once its machine is."""
_ASKING_SECONDS = 600.0
"""For `sky` to have passed on what it was asked for: killed earlier, it would be done all the same."""
_SAVE_SECONDS = 120.0
"""That a head has to end in order, checkpoint and all."""
_SSH_SECONDS = 60.0
_FETCH_SECONDS = 900.0


@dataclass(frozen=True)
class FleetOutcome:
    """What became of one run."""

    reason: str
    reached: bool
    """Whether the training is complete."""
    dollars: float
    """At most: by the prices of the plan and its margin, from the moment of asking."""
    left: tuple[str, ...]
    """What may still be running, a sentence each."""
    fetched: str | None
    """The folder with what the head has left; ``None``: it could not be fetched."""
    sight: TrainingSight
    """Of an asynchronous training."""


@dataclass
class SpotController:
    """One run of a plan; what is rented when somebody goes, who inherits from it knows."""

    request: RentRequest
    programs: Programs
    write: Callable[[StudyEvent], None]
    say: Callable[[str], None]
    cap: float
    """Dollars, of all runs in this folder."""
    cooldown_seconds: float = COOLDOWN_SECONDS
    complete: ClassVar[str] = ""
    """What the head says of a training that is."""
    leases: Leases = field(init=False)
    workers: SpotWorkers = field(init=False)
    _head: str | None = None
    """Its private address."""
    _began: float = 0.0
    _looked: float = -math.inf
    _listened: float = -math.inf
    _unread: set[str] = field(default_factory=set)
    """Looks that are under way or were not taken yet."""
    _again: float | None = None
    """When to decide anew, though nothing has happened."""
    _sight: TrainingSight = field(default_factory=TrainingSight)
    _ended: str | None = None
    _fetched: str | None = None

    def __post_init__(self) -> None:
        self.leases = Leases(self.programs, self.write)
        self.workers = SpotWorkers(self.request, self.programs, self.leases, self.say, self.cooldown_seconds)
        self._tail = ToldLines(self._cell("events").log)

    def run(self, open_leases: Sequence[OpenLease] = (), spent: float = 0.0) -> FleetOutcome:
        """To the loss, or to another end; whatever it is, nothing is left running that is not named in ``left``."""
        self.leases.spent, self._began = spent, self.programs.now()
        try:
            self._take_on(open_leases)
            if self._head is None:
                tasks.renew(self.request.secret, self.request.secret_variables)
                self._head = self._rent_server()
                for kind in tasks.first_workers(self.request):
                    self.workers.rent(kind, self._head, kind.fixed)
            reason = self._follow()
            self._part()
        except BaseException:
            try:
                self._part_if_possible()
            finally:
                self._release_all()
                for sentence in self.leases.left:
                    self.say(sentence)
            raise
        self._release_all()
        return FleetOutcome(
            reason, reason == self.complete, self.leases.dollars, tuple(self.leases.left), self._fetched, self._sight
        )

    # What is rented first ------------------------------------------------------------------------------------------

    def _take_on(self, open_leases: Sequence[OpenLease]) -> None:
        """What an earlier controller left: gone on with if its server is there, ended if not."""
        for lease in open_leases:
            self.leases.adopt(lease)
        server = next((lease for lease in open_leases if lease.name == self.request.server), None)
        if server is not None and self.request.secret.exists():
            seen = self.programs.call(server.check, ENDING_SECONDS)
            if seen.code != 0 or not is_gone(server.check, seen.output, server.name):
                self._head = self._address(until=self.programs.now())
        if self._head is None:
            self._release_all()
            return
        self._began = server.opened if server is not None else self._began
        for lease in open_leases:
            if lease.name != self.request.server:
                self.workers.adopt(lease.name, self._head)
        self.workers.changed = True
        self.say(f"{self.request.server} still runs; taken on")

    def _rent_server(self) -> str:
        submission = self.request.server_task()
        cell = self._cell(submission.lane)
        self.say(f"renting {self.request.server}")
        begin(self.request, self.programs, self.leases, submission, self.request.server_dollars)
        while self.programs.alive(cell):
            if self._beyond_cap():
                raise JobError(f"--max-cost {self.cap:g} does not last until the server is up")
            self.programs.sleep(_TICK)
        code = exit_code(cell)
        if code != 0:
            raise JobError(f"the server cannot be rented: {judge(cell, submission, code).why}")
        found = self._address(until=self.programs.now() + _ADDRESS_SECONDS)
        if found is None:
            raise JobError(
                f"the head did not start within {format_seconds(_ADDRESS_SECONDS)}; "
                f"`sky logs {self.request.server}` would have said why"
            )
        return found

    def _address(self, until: float) -> str | None:
        """The head's private address, once it has one."""
        while True:
            called = self.programs.call(tasks.address(self.request), _SSH_SECONDS)
            words = called.output.split()
            if called.code == 0 and words:
                return words[-1]
            if self.programs.now() >= until:
                return None
            self.programs.sleep(5.0)

    # What happens --------------------------------------------------------------------------------------------------

    def _follow(self) -> str:
        """Until there is a reason to end."""
        while True:
            follow_requests()
            self._hear()
            again = self._again is not None and self.programs.now() >= self._again
            if (self.workers.changed or again) and self._ended is None and not self._beyond_cap():
                self._decide()
            self.workers.look()
            self._look()
            reason = self._over()
            if reason is not None:
                return reason
            self.programs.sleep(_TICK)

    def _hear(self) -> None:
        messages = list(self._tail.news())
        ends = [each for each in messages if each["what"] == "ended"]
        for message in ends or messages:  # who leaves because it is over is no loss
            self._take(str(message["what"]), str(message.get("who", "")), message)
        if self._ended is None and not self.programs.alive(self._cell("events")):
            self._listen()  # the line broke

    def _listen(self) -> None:
        """Have the head's lines told, from the first one on; not more often than a broken line may need."""
        if self.programs.now() - self._listened >= _SSH_SECONDS / 10:
            self._listened = self.programs.now()
            self._start("events", tasks.follow(self.request))

    def _take(self, what: str, who: str, message: dict[str, Any]) -> None:
        if what == "joined":
            self.workers.joined(who)
        elif what in ("lost", "left"):
            self.workers.lost(who, "is gone" if what == "lost" else "has left")
        elif what == "notice":
            self.workers.noticed(who, float(message.get("seconds") or 0.0))
        elif what == "withdrawn":
            self.workers.withdrawn(who)
        elif what == "ended":
            self._ended = str(message.get("reason", "ended"))
            saved = message.get("saved") or {}
            if saved.get("wrong"):
                raise JobError(printable_line(str(saved["wrong"]), 400))
            if saved.get("said"):
                self.say(printable_line(str(saved["said"]), 400))
        elif what == "failed":
            self._ended = "failed"
            why = printable_line(str(message.get("why", "the training failed")), 400)
            if message.get("exit_code") == UserError.exit_code:
                raise UserError(why)
            raise JobError(f"{why}; {self._how_to_resume()}")
        self._heard(message)

    def _how_to_resume(self) -> str:
        if self.request.checkpoints is not None:
            return f"the same command resumes from the last checkpoint in {self.request.checkpoints}"
        fetched = self.request.folder.path / "trained" / "checkpoints"
        return (
            f"its last checkpoints are fetched to {fetched}; to resume, copy that folder into a bucket and run the "
            "same command with --bucket, like --bucket s3://my-bucket"
        )

    def _decide(self) -> None:
        """What to rent now, and have it rented."""
        raise NotImplementedError

    def _patience(self, last: float | None) -> float:
        """Seconds until machines that do not come are given up: in time for those on demand, if those still can be.

        ``last``: until when those would be; ``None``: they are not. A moment that is over before machines usually
        come is no reason to give them up.
        """
        if last is None or last - CHECK_SECONDS <= self._join_seconds:
            return PATIENCE_SECONDS
        return min(PATIENCE_SECONDS, last - CHECK_SECONDS)

    @property
    def _join_seconds(self) -> float:
        """As measured, else as the pool has it."""
        joins = self.workers.joins
        return sum(joins) / len(joins) if joins else self.request.plan.pool.start_seconds

    def _heard(self, message: dict[str, Any]) -> None:
        """What the head says beyond who comes and goes."""

    def _asks(self) -> dict[str, ProgramWords]:
        """What is looked at beside machines, by the name under which it is read."""
        return {}

    def _seen(self, name: str, printed: str) -> None:
        """What that has printed."""

    def _look(self) -> None:
        """Ask, in the background, what is there and how far it is; take the answers of those that have ended."""
        for name in list(self._unread):
            if not self.programs.alive(self._cell(name)):
                self._unread.discard(name)
                self._read(name)
        if not self._unread and self.programs.now() - self._looked >= CHECK_SECONDS:
            self._looked = self.programs.now()
            asks = {"jobs": tasks.jobs(), "clusters": self.request.server_task().check, **self._asks()}
            for name, words in asks.items():
                self._start(name, words)
            self._unread = set(asks)

    def _read(self, name: str) -> None:
        cell = self._cell(name)
        if exit_code(cell) != 0:
            return  # of one look nothing follows; the next one is a minute away
        printed = cell.log.read_text(errors="replace")
        if name == "jobs":
            found = records(printed)
            if found is not None:
                self.workers.listed(found, self._looked)
        elif name != "clusters":
            self._seen(name, printed)
        elif is_gone(self.request.server_task().check, printed, self.request.server):
            self._head = None
            raise JobError(f"{self.request.server} is gone, and what it has not saved with it; start again")

    def _over(self) -> str | None:
        if self._ended is not None:
            return self._ended
        if self._beyond_cap():
            return f"--max-cost {self.cap:g} is nearly spent"
        waiting = self.workers.changed or self._again is not None
        if not waiting and all(worker.state == "gone" for worker in self.workers.all.values()):
            return "nobody is left, and nobody can be had"
        return None

    def _beyond_cap(self) -> bool:
        """Whether what is rented would pass the cap if it were told to end at the next look only."""
        committed = self.leases.dollars_per_hour * (CHECK_SECONDS + ENDING_SECONDS) / HOUR
        return self.leases.dollars + committed >= self.cap

    # Ends ----------------------------------------------------------------------------------------------------------

    def _part_if_possible(self) -> None:
        with suppress(StashError, OSError):
            self._part()

    def _part(self) -> None:
        """Have the head save and end, and fetch what there is."""
        if self._head is None:
            return
        if self._ended is None:
            self.programs.call(tasks.wish(self.request, do="stop"), _SSH_SECONDS)
            patience = self.programs.now() + _SAVE_SECONDS
            while self._ended is None and self.programs.now() < patience:
                self.programs.sleep(_TICK)
                self._hear()
        self.programs.kill(self._cell("events"))
        target = self.request.folder.path / "trained"
        called = self.programs.call(tasks.fetch(self.request, str(target)), _FETCH_SECONDS)
        if called.code == 0:
            self._fetched = str(target)
        else:
            said = printable_line(called.output.strip()[-200:], 200)
            self.say(f"what the head has left could not be fetched: {said}")

    def _release_all(self) -> None:
        """End all leases, once nothing is being asked for any more: what comes later would be nobody's."""
        asking = [self._cell(name.removeprefix(f"{self.request.name}-")) for name in self.leases.names]
        try:
            patience = self.programs.now() + _ASKING_SECONDS
            while any(map(self.programs.alive, asking)) and self.programs.now() < patience:
                self.programs.sleep(_TICK)
        finally:
            self.leases.release_all()
        if not self.leases.left:
            self.request.secret.unlink(missing_ok=True)

    def _start(self, name: str, command: ProgramWords) -> None:
        cell = self._cell(name)
        cell.path.mkdir(parents=True, exist_ok=True)
        cell.status.unlink(missing_ok=True)
        self.programs.start(command, self.request.folder.work, cell)

    def _cell(self, name: str) -> CellFolder:
        return self.request.folder.cell(name)
