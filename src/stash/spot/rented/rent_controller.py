"""Runs a fleet plan to its end: rents, follows, decides again whenever a worker goes, and ends all of it.

It trains nothing: that goes on on the machines for as long as any worker is left. What is rented when one goes, the
policy that it is given knows. What is rented is in the journal first, so a controller that is killed is followed by
one that goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from stash.core.errors import JobError, StashError, UserError
from stash.core.interrupts import follow_requests, postponed
from stash.core.printable import printable_line
from stash.core.units import format_seconds
from stash.spot.choose.fleet_costs import HOUR
from stash.spot.members import MemberState
from stash.spot.rented import tasks
from stash.spot.rented.tasks import RentRequest
from stash.spot.rented.workers import PATIENCE_SECONDS, SpotWorkers
from stash.spot.replacement.outlook import RentDecision
from stash.spot.train.run_orders import FollowedLog
from stash.study.backend import JobBackend, OpenLease, ProgramWords
from stash.study.judgement import judge
from stash.study.programs import is_gone, records

CHECK_SECONDS = 60.0
"""Between two looks at what is rented and how far the training is."""
_LOOK_SECONDS = 300.0
"""That a look may take: one that hangs is ended, and the next one begins."""
COOLDOWN_SECONDS = 1200.0
"""Of a type that was revoked or refused."""
ENDING_SECONDS = 300.0
"""That everything may still cost once it is asked to end: to save, and to be taken down."""
_TICK = 0.5
_ADDRESS_SECONDS = 600.0
"""Until the head's Ray has to be up, once its machine is."""
_ASKING_SECONDS = 600.0
"""For `sky` to have passed on what it was asked for: killed earlier, it would be done all the same."""
_SAVE_SECONDS = 120.0
"""That a head has to end in order, checkpoint and all."""
_SSH_SECONDS = 60.0
_FETCH_SECONDS = 900.0
_EVENTS, _JOBS, _CLUSTERS = "events", "jobs", "clusters"
"""Names of what runs in the background: what follows the head, and two looks at clouds."""


def ending_dollars(hourly: float, server: float) -> float:
    """What all that is rented, of so many $/h, costs from the look that has it end: saved, fetched and taken down.

    The servers stay until what they have left is fetched, which may take as long as it is waited for.
    """
    return (hourly * (CHECK_SECONDS + ENDING_SECONDS) + server * _FETCH_SECONDS) / HOUR


class RentPolicy(Protocol):
    """Knows what a training needs; decides what is rented when some of it goes."""

    complete: str
    """What the head says of a training that is."""

    def on_message(self, message: Mapping[str, Any]) -> str | None:
        """What the head says; the sentence that is worth showing beyond who comes and goes."""

    def looks(self) -> Mapping[str, ProgramWords]:
        """What is watched besides machines, by name."""

    def on_look(self, name: str, printed: str) -> None:
        """What such a look has printed."""

    def decide(self, workers: SpotWorkers, seconds_left: float, dollars_left: float) -> RentDecision:
        """What to rent now; its ``why`` is shown, and has what is left of the training."""


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


@dataclass
class RentController:
    """One run of a plan."""

    request: RentRequest
    policy: RentPolicy
    backend: JobBackend
    say: Callable[[str], None]
    cap: float
    """Dollars, of all runs in this folder."""
    cooldown_seconds: float = COOLDOWN_SECONDS
    workers: SpotWorkers = field(init=False)
    _head: str | None = None
    """Its private address."""
    _began: float = 0.0
    _looked: float = -math.inf
    _followed: float = -math.inf
    _unread: set[str] = field(default_factory=set)
    """Looks that are under way or were not taken yet."""
    _blind: float = -math.inf
    """Until when nothing is decided: how far a training is that was taken on shows its next look."""
    _again: float | None = None
    """When to decide again, though nothing has happened."""
    _ended: str | None = None
    _fetched: str | None = None

    def __post_init__(self) -> None:
        self.workers = SpotWorkers(self.request, self.backend, self.say, self.cooldown_seconds)
        self._log = FollowedLog(self.backend.cell(_EVENTS).log)

    def run(self, open_leases: Sequence[OpenLease] = ()) -> FleetOutcome:
        """Train to the loss, or to another end; then nothing is left running that is not named in ``left``."""
        self._began = self._now
        try:
            self._take_on(open_leases)
            if self._head is None:
                self.backend.kill(_EVENTS)  # what an earlier run of the plan followed, and what its head said
                self.backend.cell(_EVENTS).log.unlink(missing_ok=True)
                tasks.renew(self.request.secret, self.request.secret_variables)
                self._head = self._rent_server()
                for kind in tasks.first_workers(self.request):
                    self.workers.rent(kind, self._head, kind.fixed)
            reason = self._follow()
            self._save_and_fetch()
        except BaseException:
            try:
                with suppress(StashError, OSError):
                    self._save_and_fetch()
            finally:
                self._release_all()
                for sentence in self.backend.left:
                    self.say(sentence)
            raise
        self._release_all()
        complete = reason == self.policy.complete
        return FleetOutcome(reason, complete, self.backend.dollars, tuple(self.backend.left), self._fetched)

    @property
    def _now(self) -> float:
        return self.backend.programs.now()

    def _take_on(self, open_leases: Sequence[OpenLease]) -> None:
        """What an earlier controller left: gone on with if its server is there, ended if not.

        Raises JobError, and leaves all of it as it is, where training had begun and its server does not answer.
        """
        for lease in open_leases:
            self.backend.adopt(lease)
        server = next((lease for lease in open_leases if lease.name == self.request.server), None)
        if server is not None and self.request.secret.exists():
            seen = self.backend.call(server.check, ENDING_SECONDS)
            if seen.code != 0 or not is_gone(server.check, seen.output, server.name):
                self._head = self._address(until=self._now + _SSH_SECONDS)
                if self._head is None and len(open_leases) > 1:  # workers come once the head is up
                    self._leave(open_leases)
                    raise JobError(f"{server.name} does not answer by ssh; try the same command again")
        if self._head is None:
            self._release_all()
            return
        self._began = server.opened if server is not None else self._began
        for lease in open_leases:
            if lease.name != self.request.server:
                self.workers.adopt(lease.name, self._head)
        self.workers.changed, self._blind = True, self._now + CHECK_SECONDS
        self.say(f"{self.request.server} still runs; taken on")

    def _leave(self, leases: Sequence[OpenLease]) -> None:
        """Name what runs on, with what ends it."""
        for lease in leases:
            del self.backend.leases[lease.name]
            ends = " and ".join(" ".join(words) for words in lease.release)
            self.backend.left.append(f"{lease.name} runs on; `{ends}` ends it")

    def _rent_server(self) -> str:
        submission = self.request.server_task()
        name = submission.lane
        self.say(f"renting {self.request.server}")
        self.backend.open(name, submission, self.request.server_dollars)
        self.backend.start(name, submission)
        while self.backend.alive(name):
            if self._beyond_cap():
                raise JobError(f"--max-dollars {self.cap:g} does not last until the server is up")
            self.backend.programs.sleep(_TICK)
        code = self.backend.code(name)
        if code != 0:
            why = judge(self.backend.cell(name), submission, code).why
            raise JobError(f"the server cannot be rented: {why}")
        found = self._address(until=self._now + _ADDRESS_SECONDS)
        if found is None:
            raise JobError(
                f"the head did not start within {format_seconds(_ADDRESS_SECONDS)}; "
                f"`sky logs {self.request.server}` would have said why"
            )
        return found

    def _address(self, until: float) -> str | None:
        """The head's private address, once it has one."""
        while True:
            called = self.backend.call(tasks.address(self.request), _SSH_SECONDS)
            words = called.output.split()
            if called.code == 0 and words:
                return words[-1]
            if self._now >= until:
                return None
            self.backend.programs.sleep(5.0)

    def _follow(self) -> str:
        """Until there is a reason to end."""
        while True:
            follow_requests()
            self._read_log()
            due = self.workers.changed or (self._again is not None and self._now >= self._again)
            if due and self._now >= self._blind and self._ended is None and not self._beyond_cap():
                self._decide()
            self.workers.look()
            self._look()
            reason = self._over()
            if reason is not None:
                return reason
            self.backend.programs.sleep(_TICK)

    def _read_log(self) -> None:
        messages = list(self._log.news())
        ends = [each for each in messages if each["what"] == "ended"]
        for message in ends or messages:  # who leaves because it is over is no loss
            self._take(str(message["what"]), str(message.get("who", "")), message)
        broken = self._ended is None and not self.backend.alive(_EVENTS)
        if broken and self._now - self._followed >= _SSH_SECONDS / 10:  # not more often than a broken line may need
            self._followed = self._now
            self.backend.run(_EVENTS, tasks.follow(self.request))

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
        sentence = self.policy.on_message(message)
        if sentence is not None:
            self.say(sentence)

    def _how_to_resume(self) -> str:
        if self.request.checkpoints is not None:
            return f"the same command resumes from the last checkpoint in {self.request.checkpoints}"
        fetched = self.request.folder.path / "trained" / "checkpoints"
        return (
            f"its last checkpoints are fetched to {fetched}; to resume, copy that folder into a bucket and run the "
            "same command with --checkpoint-url, like --checkpoint-url s3://my-bucket"
        )

    def _decide(self) -> None:
        """Have the policy say what to rent now, and rent it."""
        assert self._head is not None
        self.workers.changed, self._again = False, None
        seconds_left = self._began + self.request.plan.deadline_seconds - self._now
        found = self.policy.decide(self.workers, seconds_left, max(0.0, self._dollars_left))
        self.say(found.why)
        if found.look_again_seconds is not None:
            self._again = self._now + found.look_again_seconds
        # Machines that do not come are given up in time for those on demand, if those still can be in time. A moment
        # that is over before machines usually come is no reason to give them up.
        patience, last = PATIENCE_SECONDS, found.last_moment_seconds
        if last is not None and last - CHECK_SECONDS > self.workers.join_seconds:
            patience = min(patience, last - CHECK_SECONDS)
        for added, on_demand in ((found.add, False), (found.add_on_demand, True)):
            for name in [name for name, number in added.items() for _ in range(number)]:
                kind = self.request.kind(name)
                self.workers.rent(kind, self._head, on_demand or kind.fixed, patience)

    def _look(self) -> None:
        """Ask, in the background, what is there and how far it is; take the answers of those that have ended."""
        for name in list(self._unread):
            if self.backend.alive(name):
                if self._now - self._looked >= _LOOK_SECONDS:
                    self.backend.kill(name)
                    self._unread.discard(name)
            else:
                self._unread.discard(name)
                if self.backend.code(name) == 0:  # of one look nothing follows; the next one is a minute away
                    self._take_look(name, self.backend.cell(name).log.read_text(errors="replace"))
        if not self._unread and self._now - self._looked >= CHECK_SECONDS:
            self._looked = self._now
            looks = {_JOBS: tasks.jobs(), _CLUSTERS: self.request.server_task().check, **self.policy.looks()}
            for name, words in looks.items():
                self.backend.run(name, words)
            self._unread = set(looks)

    def _take_look(self, name: str, printed: str) -> None:
        if name == _JOBS:
            jobs = records(printed)
            if jobs is not None:
                self.workers.listed(jobs, self._looked)
        elif name != _CLUSTERS:
            self.policy.on_look(name, printed)
        elif is_gone(self.request.server_task().check, printed, self.request.server):
            self._head = None
            raise JobError(f"{self.request.server} is gone, and what it has not saved with it; start again")

    def _over(self) -> str | None:
        if self._ended is not None:
            return self._ended
        if self._beyond_cap():
            return f"--max-dollars {self.cap:g} is nearly spent"
        waiting = self.workers.changed or self._again is not None
        if not waiting and all(worker.state is MemberState.GONE for worker in self.workers.members.values()):
            return "no worker is left, and none can be had"
        return None

    def _beyond_cap(self) -> bool:
        return self._dollars_left <= 0

    @property
    def _dollars_left(self) -> float:
        """What training may still cost, below 0 where ending would pass the cap."""
        ending = ending_dollars(self.backend.dollars_per_hour, self.request.server_dollars)
        return self.cap - self.backend.dollars - ending

    def _save_and_fetch(self) -> None:
        """Have the head save and end, end the workers once it has, and fetch what there is."""
        if self._head is None:
            return
        if self._ended is None:
            self.backend.call(tasks.wish(self.request, do="stop"), _SSH_SECONDS)
            until = self._now + _SAVE_SECONDS
            while self._ended is None and self._now < until:
                self.backend.programs.sleep(_TICK)
                self._read_log()
        if self._ended is not None:
            self.workers.end_all()
        self.backend.kill(_EVENTS)
        target = self.request.folder.path / "trained"
        if target.exists():  # of an earlier run: scp would copy into it
            target.rename(next(p for n in count(1) if not (p := target.with_name(f"trained.{n}")).exists()))
        called = self.backend.call(tasks.fetch(self.request, str(target)), _FETCH_SECONDS)
        if called.code == 0:
            self._fetched = str(target)
        else:
            last = printable_line(called.output.strip()[-200:], 200)
            self.say(f"what the head has left could not be fetched: {last}")

    def _release_all(self) -> None:
        """End all leases, once nothing is being asked for any more: what comes later would have no owner."""
        asking = [lease.removeprefix(f"{self.request.name}-") for lease in self.backend.leases]
        try:
            until = self._now + _ASKING_SECONDS
            while any(map(self.backend.alive, asking)) and self._now < until:
                self.backend.programs.sleep(_TICK)
        finally:
            with postponed():  # an interrupt now would leave machines that nobody names
                self.backend.release_all()
        if not self.backend.left:
            self.request.secret.unlink(missing_ok=True)
