"""Rehearses a synchronous script under torchrun: takes nodes away, launches successors, keeps the account.

A node that has notice is asked to end once a checkpoint is whole, or it is too late for one. torchrun puts the group
together again; where it has not after a while, because what is left hangs in a collective or a newcomer is not let
in, every agent is started again, under another rendezvous. The script goes on from its own checkpoint. Where the
agents run, it does not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stash.core.errors import JobError, StashError
from stash.lab.testbed.revoke import RevocationMoment
from stash.spot.members import FleetMember, Members, MemberState
from stash.spot.records.runs import NoticeCheckpoint, SpotEvent, SyncSetback
from stash.spot.sync.agents import SyncOrders, TorchrunAgents, TrainingGroup
from stash.spot.sync.checkpoint_request import CheckpointRequest
from stash.spot.sync.group_monitor import ENDED, GroupWatch

_POLL = 0.2
_PATIENCE, _PATIENCE_EACH = 30.0, 10.0
"""Seconds for torchrun to put a group together, and so many more for each node: this machine starts them all."""
_RESTARTS = 3
"""In a row, without a group."""
_SETTLE = 3.0
"""Seconds between an agent that failed and the verdict: at the end of a script, who waits to be let in fails too."""


@dataclass(frozen=True)
class Listeners:
    """Take what happens, and what the script prints, at once."""

    event: Callable[[SpotEvent], None]
    line: Callable[[str, str], None]


class SyncRehearsal:
    """One script on some nodes."""

    def __init__(
        self,
        orders: SyncOrders,
        agents: TorchrunAgents,
        types: Mapping[str, str],
        coming: Sequence[RevocationMoment],
        listeners: Listeners,
        patience: float = _PATIENCE,
    ) -> None:
        """``types``: of machine, by node."""
        self._orders, self._agents, self._listeners = orders, agents, listeners
        self._types, self._coming = types, list(coming)
        self._members: Members[FleetMember] = Members()
        self._noticed: dict[str, list[str]] = {}
        self._leaving: dict[str, tuple[float, CheckpointRequest]] = {}
        """Nodes that train until a checkpoint is settled: their notice, and that."""
        self._open: dict[str, SyncSetback] = {}
        self._group: TrainingGroup | None = None
        self._grouped = time.monotonic()
        """When the group was last started."""
        whole = patience + _PATIENCE_EACH * len(orders.nodes)
        self._watch = GroupWatch(whole, 0.0, _SETTLE, _RESTARTS, self._grouped)
        self.began: float | None = None
        self.ended: float | None = None
        self.reason = "interrupted"
        self.restarts = 0
        self.events: list[SpotEvent] = []

    @property
    def setbacks(self) -> tuple[SyncSetback, ...]:
        """The setbacks in the order in which they happened."""
        return tuple(sorted(self._open.values(), key=lambda each: each.at))

    def run(self, seconds: float) -> None:
        """Run until the script ends, or so long at most; raises JobError if the script fails, StashError if no group
        comes together.
        """
        try:
            self._agents.start()
            for name in self._orders.nodes:
                self._launch(name, self._types[name])
            while self.reason == "interrupted":
                self._look(seconds)
                time.sleep(_POLL)
        except StashError as error:
            self.reason = str(error)
            raise
        finally:
            self.ended = time.monotonic()
            self._agents.close()
            self._pass_on_lines()

    def _look(self, seconds: float) -> None:
        self._pass_on_lines()
        self._see_group()
        self._see_ends()
        if self.began is None:
            return
        self._let_go()
        while self._coming and time.monotonic() - self.began >= self._coming[0].at:
            self._revoke(self._coming.pop(0))
        if time.monotonic() - self.began >= seconds:
            self.reason = "time is up"

    def _pass_on_lines(self) -> None:
        for name, line in self._agents.printed():
            self._listeners.line(name, line)

    def _emit(self, what: str, who: str = "", **facts: Any) -> None:
        at = None if self.began is None else time.monotonic() - self.began
        type = self._members[who].type if who in self._members else None
        event = SpotEvent(at=at, what=what, who=who, type=type, **facts)
        self.events.append(event)
        self._listeners.event(event)

    def _launch(self, name: str, type: str | None, instead_of: str | None = None) -> None:
        """A node, which counts as there from now on."""
        self._members.add(FleetMember(name, type, MemberState.TRAINING, time.monotonic()))
        if instead_of is not None:
            self._emit("wanted", name, instead_of=instead_of)
        self._agents.launch(name)

    def _see_group(self) -> None:
        there = self._members.there
        found, now = self._agents.group(there), time.monotonic()
        if found is not None and found != self._group:
            self._group, self._grouped = found, now
            self._formed(found.nodes, now)
        if found is not None and found.nodes == set(there):
            self._watch.whole(now)
        elif len(there) < self._orders.least:
            self._watch.too_few(now)
        elif self._watch.overdue(len(there), now):
            self._restart()

    def _formed(self, nodes: frozenset[str], now: float) -> None:
        whole = len(nodes) == len(self._orders.nodes)
        if self.began is None:
            if not whole:
                return
            self.began = now
        self._emit("formed", ", ".join(sorted(nodes)))
        for name, each in self._open.items():
            after = now - self.began - each.at
            again = after if each.again_seconds is None else each.again_seconds
            done = after if whole and each.whole_seconds is None else each.whole_seconds
            self._open[name] = each.model_copy(update={"again_seconds": again, "whole_seconds": done})

    def _restart(self) -> None:
        """All who are there begin again, from the last checkpoint; raises StashError if that is of no use."""
        there = sorted(self._members.there)
        apart = self._watch.restart(there, time.monotonic())
        self.restarts += 1
        self._emit("restarted", seconds=apart)
        for name in there:
            self._agents.end(name)
        self._agents.begin()
        for name in there:
            self._agents.launch(name)
        self._watch.together = time.monotonic()

    def _see_ends(self) -> None:
        codes = {name: code for name, code in self._agents.ended().items() if name in self._members.there}
        if 0 in codes.values():
            self.reason = ENDED
        elif self._watch.settled(bool(codes), time.monotonic()):
            broken = [name for name in sorted(codes) if self._agents.script_failed(name)]
            if broken:
                raise JobError(f"the script failed on {broken[0]}: {self._agents.complaint(broken[0])}")
            self._restart()

    def _revoke(self, moment: RevocationMoment) -> None:
        if moment.what == "notice":
            self._noticed[moment.who] = self._members.called(moment.who)
            wanted = CheckpointRequest(self._orders.checkpoints, moment.seconds)
            for name in self._noticed[moment.who]:
                self._members.notice(name, moment.seconds, time.monotonic())
                self._emit("notice", name, seconds=moment.seconds)
                self._leaving[name] = moment.seconds, wanted
            self._let_go()
            return
        for name in self._noticed.pop(moment.who, None) or self._members.called(moment.who):
            member = self._members[name]
            if member.state is MemberState.GONE:
                continue
            if not member.ended:
                self._set_back(name, None, None)
            self._agents.vanish(name)
            self._members.lose(name, time.monotonic())
            self._emit("vanished", name)
            successor = f"worker{len(self._members) + 1}"
            self._open[name] = self._open[name].model_copy(update={"successor": successor})
            self._launch(successor, member.type, instead_of=name)

    def _let_go(self) -> None:
        """Ask those nodes to end whose checkpoint is whole, or will not be in time."""
        for name, (notice, wanted) in list(self._leaving.items()):
            if not wanted.settled():
                continue
            if wanted.seconds is None:
                self._emit("not saved", name, told=(wanted.why,))
            else:
                self._emit("saved", name, seconds=wanted.seconds)
            self._set_back(name, notice, NoticeCheckpoint(seconds=wanted.seconds, why=wanted.why))
            self._agents.ask(name)

    def _set_back(self, name: str, notice: float | None, checkpoint: NoticeCheckpoint | None) -> None:
        assert self.began is not None
        now = time.monotonic()
        self._members.finish(name, now)
        self._leaving.pop(name, None)
        written = [path.stat().st_mtime for path in self._orders.checkpoints.glob("*.ckpt")]
        age = max(0.0, time.time() - max(written)) if written else float("inf")
        safe = max(self._grouped, now - age)
        self._open[name] = SyncSetback(
            gone=name, at=now - self.began, notice=notice, lost_seconds=now - safe, checkpoint=checkpoint
        )
