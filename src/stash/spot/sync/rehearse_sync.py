"""Rehearses a synchronous script under torchrun: takes nodes away, launches successors, keeps the account.

A node that has notice is asked to end once a checkpoint is whole, or it is too late for one. torchrun puts the group
together again; where it has not after a while, because what is left hangs in a collective or a newcomer is not let
in, every agent is started anew, under another rendezvous. The script goes on from its own checkpoint. Where the
agents run, it does not know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stash.core.errors import JobError, StashError
from stash.lab.testbed.revoke import RevocationMoment
from stash.spot.records.runs import NoticeCheckpoint, SpotEvent, SyncSetback
from stash.spot.sync.agents import SyncOrders, TrainingGroup
from stash.spot.sync.checkpoint_request import CheckpointRequest

_POLL = 0.2
_PATIENCE, _PATIENCE_EACH = 30.0, 10.0
"""Seconds for torchrun to put a group together, and so many more for each node: this machine starts them all."""
_RESTARTS = 3
"""In a row, without a group."""
_SETTLE = 3.0
"""Seconds between an agent that failed and the verdict: at the end of a script, who waits to be let in fails too."""


class Agents(Protocol):
    """What a rehearsal asks of where its nodes are."""

    def start(self) -> None: ...

    def begin(self) -> None: ...

    def launch(self, name: str) -> None: ...

    def ask(self, name: str) -> None: ...

    def end(self, name: str) -> None: ...

    def vanish(self, name: str) -> None: ...

    def ended(self) -> dict[str, int]: ...

    def group(self, present: Collection[str]) -> TrainingGroup | None: ...

    def printed(self) -> list[tuple[str, str]]: ...

    def script_failed(self, name: str) -> bool: ...

    def complaint(self, name: str) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Listeners:
    """Who hears of what happens, and what the script prints, at once."""

    event: Callable[[SpotEvent], None]
    line: Callable[[str, str], None]


class SyncRehearsal:
    """One script on some nodes."""

    def __init__(
        self,
        orders: SyncOrders,
        agents: Agents,
        types: Mapping[str, str],
        coming: Sequence[RevocationMoment],
        listeners: Listeners,
        patience: float = _PATIENCE,
    ) -> None:
        """``types``: of machine, by node."""
        self._orders, self._agents, self._listeners = orders, agents, listeners
        self._types, self._coming = dict(types), list(coming)
        self._patience = patience + _PATIENCE_EACH * len(orders.nodes)
        self._present: set[str] = set()
        self._noticed: dict[str, list[str]] = {}
        self._leaving: dict[str, tuple[float, CheckpointRequest]] = {}
        """Nodes that train until a checkpoint is settled: their notice, and that."""
        self._open: dict[str, SyncSetback] = {}
        self._group: TrainingGroup | None = None
        self._grouped = self._apart = time.monotonic()
        """When the group was last started, and when it was last seen to be all who are there."""
        self._in_a_row = 0
        self._failed: float | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.reason = "interrupted"
        self.restarts = 0
        self.events: list[SpotEvent] = []

    @property
    def setbacks(self) -> tuple[SyncSetback, ...]:
        """In the order in which they happened."""
        return tuple(sorted(self._open.values(), key=lambda each: each.at))

    def run(self, seconds: float) -> None:
        """Until the script ends, or for so long at most; raises JobError if the script fails, StashError if no group
        comes together.
        """
        try:
            self._agents.start()
            for name in self._orders.nodes:
                self._launch(name)
            while self.reason == "interrupted":
                self._look(seconds)
                time.sleep(_POLL)
        except StashError as error:
            self.reason = str(error)
            raise
        finally:
            self.ended = time.monotonic()
            self._agents.close()
            self._relay()

    def _look(self, seconds: float) -> None:
        self._relay()
        self._see_group()
        self._see_ends()
        if self.began is None:
            return
        self._let_go()
        while self._coming and time.monotonic() - self.began >= self._coming[0].at:
            self._revoke(self._coming.pop(0))
        if time.monotonic() - self.began >= seconds:
            self.reason = "time is up"

    def _relay(self) -> None:
        for name, line in self._agents.printed():
            self._listeners.line(name, line)

    def _tell(self, what: str, who: str = "", **facts: Any) -> None:
        at = None if self.began is None else time.monotonic() - self.began
        event = SpotEvent(at=at, what=what, who=who, type=self._types.get(who), **facts)
        self.events.append(event)
        self._listeners.event(event)

    def _launch(self, name: str) -> None:
        self._present.add(name)
        self._agents.launch(name)

    # The group -------------------------------------------------------------------------------------------------

    def _see_group(self) -> None:
        found = self._agents.group(self._present)
        now = time.monotonic()
        if found is not None and found != self._group:
            self._group, self._grouped = found, now
            self._formed(found.nodes, now)
        if found is not None and found.nodes == self._present:
            self._apart, self._in_a_row = now, 0
        elif len(self._present) < self._orders.least:
            self._apart = now  # until a successor comes there is nothing to put together
        elif now - self._apart > self._patience:
            self._restart()

    def _formed(self, nodes: frozenset[str], now: float) -> None:
        whole = len(nodes) == len(self._orders.nodes)
        if self.began is None:
            if not whole:
                return
            self.began = now
        self._tell("formed", ", ".join(sorted(nodes)))
        for name, each in self._open.items():
            after = now - self.began - each.at
            again = after if each.again_seconds is None else each.again_seconds
            done = after if whole and each.whole_seconds is None else each.whole_seconds
            self._open[name] = each.model_copy(update={"again_seconds": again, "whole_seconds": done})

    def _restart(self) -> None:
        """Everybody who is there begins anew, from the last checkpoint; raises StashError if that is of no use."""
        self._in_a_row += 1
        if self._in_a_row > _RESTARTS:
            names = ", ".join(sorted(self._present))
            raise StashError(f"torchrun put no group of {names} together, {self._in_a_row} times in a row")
        self.restarts += 1
        self._tell("restarted", seconds=time.monotonic() - self._apart)
        for name in sorted(self._present):
            self._agents.end(name)
        self._agents.begin()
        for name in sorted(self._present):
            self._launch(name)
        self._apart, self._failed = time.monotonic(), None

    # The end ---------------------------------------------------------------------------------------------------

    def _see_ends(self) -> None:
        codes = {name: code for name, code in self._agents.ended().items() if name in self._present}
        if 0 in codes.values():
            self.reason = "the script ended"
        elif not codes:
            self._failed = None
        elif self._failed is None:
            self._failed = time.monotonic()
        elif time.monotonic() - self._failed > _SETTLE:
            broken = [name for name in sorted(codes) if self._agents.script_failed(name)]
            if broken:
                raise JobError(f"the script failed on {broken[0]}: {self._agents.complaint(broken[0])}")
            self._restart()

    # Revocations -----------------------------------------------------------------------------------------------

    def _revoke(self, moment: RevocationMoment) -> None:
        if moment.what == "notice":
            self._noticed[moment.who] = self._meant(moment.who)
            wanted = CheckpointRequest(self._orders.checkpoints, moment.seconds)
            for name in self._noticed[moment.who]:
                self._tell("notice", name, seconds=moment.seconds)
                self._leaving[name] = moment.seconds, wanted
            self._let_go()
            return
        for name in self._noticed.pop(moment.who, None) or self._meant(moment.who):
            if name in self._gone:
                continue
            if name in self._present:
                self._set_back(name, None, None)
            self._agents.vanish(name)
            self._tell("vanished", name)
            self._replace(name)

    def _meant(self, who: str) -> list[str]:
        return sorted(name for name in self._present if who in (name, self._types[name]))

    @property
    def _gone(self) -> set[str]:
        """Nodes whose machine is no more."""
        return {name for name, each in self._open.items() if each.successor is not None}

    def _let_go(self) -> None:
        """Ask those nodes to end whose checkpoint is whole, or will not be in time."""
        for name, (notice, wanted) in list(self._leaving.items()):
            if not wanted.settled():
                continue
            if wanted.seconds is None:
                self._tell("not saved", name, told=(wanted.why,))
            else:
                self._tell("saved", name, seconds=wanted.seconds)
            self._set_back(name, notice, NoticeCheckpoint(seconds=wanted.seconds, why=wanted.why))
            self._agents.ask(name)

    def _set_back(self, name: str, notice: float | None, checkpoint: NoticeCheckpoint | None) -> None:
        assert self.began is not None
        self._present.discard(name)
        self._leaving.pop(name, None)
        now = time.monotonic()
        safe = max(self._grouped, now - _age(self._orders.checkpoints))
        self._open[name] = SyncSetback(
            gone=name, at=now - self.began, notice=notice, lost_seconds=now - safe, checkpoint=checkpoint
        )

    def _replace(self, name: str) -> None:
        successor = f"worker{len(self._types) + 1}"
        self._types[successor] = self._types[name]
        self._open[name] = self._open[name].model_copy(update={"successor": successor})
        self._tell("wanted", successor, instead_of=name)
        self._launch(successor)


def _age(folder: Path) -> float:
    """Seconds since the newest checkpoint in it was written; endless if there is none."""
    written = [path.stat().st_mtime for path in folder.glob("*.ckpt")]
    return max(0.0, time.time() - max(written)) if written else float("inf")
