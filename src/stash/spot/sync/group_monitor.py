"""Which nodes of a rented gang are there, whether they train together, and what is done when they do not.

The judgement of the head: from what nodes write and when they were last there follow the events that a controller
reads, and what nodes are to do. torchrun puts the group together again; where it has not after a while, or gave up,
all agents start again, in another round. A script that torchrun has started several times, and that failed each time
though no node went and nothing was saved in between, has failed of itself. Sends nothing; the clock is given.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stash.core.errors import StashError
from stash.spot.members import DESERTED_SECONDS, FleetMember, Members, MemberState

STARTS = 3
"""Times that torchrun starts a script again, in one round."""
MISSED_SECONDS = 30.0
"""Without a beat, until a node is taken to be gone."""
_PATIENCE, _PATIENCE_EACH = 90.0, 10.0
"""Seconds for torchrun to put a group together, and so many more for each node."""
_ROUNDS = 3
"""In a row, without a group."""
_SETTLE = 10.0
"""Seconds between an agent that failed and the verdict: at the end of a script, who waits to be let in fails too."""
_SHUTDOWN_SECONDS = 60.0
"""For the others to end, once one script has."""
_SAVING = 90.0
"""For a checkpoint, when all is to end."""
ENDED = "the script ended"


@dataclass(frozen=True)
class GangOrders:
    """What all nodes are to do."""

    round: int = 1
    """Another one is another rendezvous: every agent starts again."""
    listens: bool = False
    """Whether some script looks for requests to save."""
    wanted: str | None = None
    """The latest request, its own word."""
    saved: tuple[str | None, float] | None = None
    """Of the checkpoint that was saved last: the word it answers, and the seconds it took."""
    over: bool = False
    """End, whatever you do."""


@dataclass
class GroupWatch:
    """How long nodes may be there and not train together, and how often starting all of them again is tried."""

    patience: float
    patience_each: float
    """Seconds more for each node."""
    settle: float
    """Seconds from the first agent that failed to the verdict."""
    most_restarts: int
    """In a row."""
    together: float
    """When all who are there last trained together, or were too few to."""
    failed: float | None = None
    """Since when some agent has failed."""
    restarts: int = 0
    """In a row."""

    def whole(self, now: float) -> None:
        """Record that all who are there train together."""
        self.together, self.restarts = now, 0

    def too_few(self, now: float) -> None:
        """Record that there are too few nodes to train until a successor comes."""
        self.together = now

    def overdue(self, nodes: int, now: float) -> bool:
        """Whether so many nodes were apart for too long."""
        return now - self.together > self.patience + self.patience_each * nodes

    def settled(self, failed: bool, now: float) -> bool:
        """Whether agents have failed for long enough to say whose fault it is."""
        if not failed:
            self.failed = None
        elif self.failed is None:
            self.failed = now
        return self.failed is not None and now - self.failed > self.settle

    def restart(self, names: Iterable[str], now: float) -> float:
        """Restart all; return the seconds that they were apart. Raises StashError if that was of no use already."""
        self.restarts += 1
        if self.restarts > self.most_restarts:
            text = ", ".join(sorted(names))
            raise StashError(f"torchrun put no group of {text} together, {self.restarts} times in a row")
        apart = now - self.together
        self.together, self.failed = now, None
        return apart


class GroupPhase(enum.Enum):
    """How far a job is."""

    RUNNING = "running"
    STOPPING = "stopping"
    """It is to end once a checkpoint is whole."""
    ENDING = "ending"
    """A script has ended by itself; the others have a while to."""
    OVER = "over"


@dataclass
class _Node(FleetMember):
    beats: int = -1
    seen: float = 0.0
    """When it last beat."""
    group: tuple[int, str, int] | None = None
    """Round, meeting and size of the group in which its script was started last."""
    code: int | None = None
    """Of its torchrun, once that has ended in this round."""
    script: bool = False
    """Whether it was the script that failed."""
    why: str = ""


@dataclass
class GroupMonitor:
    """One job."""

    least: int
    most: int
    emit: Callable[..., None]
    """Takes what has happened: ``what``, ``who`` and facts."""
    began: float
    orders: GangOrders = field(default_factory=GangOrders)
    phase: GroupPhase = GroupPhase.RUNNING
    _since: float = 0.0
    """When that began."""
    _members: Members[_Node] = field(default_factory=Members)
    _group: frozenset[str] = frozenset()
    _meeting: tuple[int, str] = (0, "")
    _excused: bool = False
    """A node went, or something was saved, since this round began."""
    _last_seen: float = 0.0
    """When any node was there."""

    def __post_init__(self) -> None:
        self._watch = GroupWatch(_PATIENCE, _PATIENCE_EACH, _SETTLE, _ROUNDS, self.began)
        self._last_seen = self.began

    @property
    def nodes(self) -> tuple[str, ...]:
        """Who is there."""
        return self._members.there

    def on_message(self, message: Mapping[str, Any], now: float) -> None:
        """One message of a node's."""
        what, who = message["what"], message["who"]
        if what == "up":
            self._members.add(_Node(who, since=now, seen=now))
            return
        node = self._members.get(who)
        if node is None or node.ended:
            return  # it was taken to be gone, and is being replaced
        node.seen = now
        if what == "started":
            node.group = int(message["round"]), str(message["meeting"]), int(message["size"])
        elif what == "listens":
            self.orders = replace(self.orders, listens=True)
        elif what == "saved":
            word = message.get("word")
            saved = (None if word is None else str(word)), float(message["seconds"])
            self.orders = replace(self.orders, saved=saved)
            self._excused = True
            self.emit("saved", who, seconds=saved[1])
            if self.phase is GroupPhase.STOPPING and saved[0] == self.orders.wanted:
                self._end("interrupted")
        elif what == "notice":
            seconds = float(message["seconds"])
            self._members.notice(who, seconds, now)
            self.orders = replace(self.orders, wanted=str(message["word"]))
            self.emit("notice", who, seconds=seconds)
        elif what == "withdrawn":
            self._members.withdraw(who, now)
            self.emit("withdrawn", who)
        elif what == "left":
            self._gone(who, "left", now)
        elif what == "ended" and int(message["round"]) == self.orders.round:
            node.code, node.script = int(message["code"]), bool(message["script"])
            node.why = str(message["why"])

    def stop(self, now: float) -> None:
        """End the whole group, saved if that is possible."""
        if self.phase is GroupPhase.ENDING:
            self._end(ENDED)
        elif self.phase is GroupPhase.RUNNING:
            if self.orders.listens and self._group:
                self.phase, self._since = GroupPhase.STOPPING, now
                self.orders = replace(self.orders, wanted=secrets.token_hex(8))
            else:
                self._end("interrupted")

    def _gone(self, who: str, how: str, now: float) -> None:
        if how == "left":
            self._members.finish(who, now)
        else:
            self._members.lose(who, now)
        self._excused = True
        self.emit(how, who)

    def look(self, beats: Mapping[str, int], now: float) -> None:
        """Judge what there is; ``beats`` of who is there."""
        for who in self.nodes:
            node = self._members[who]
            if beats.get(who, node.beats) != node.beats:
                node.beats, node.seen = beats[who], now
            elif now - node.seen > MISSED_SECONDS:
                self._gone(who, "lost", now)
        nodes = {who: self._members[who] for who in self.nodes}
        if nodes:
            self._last_seen = now
        if self.phase is GroupPhase.OVER:
            return
        self._see_ends(nodes, now)
        self._see_group(nodes, now)
        if self.phase is GroupPhase.STOPPING and now - self._since > _SAVING:
            self._end("interrupted")
        elif now - self._last_seen > DESERTED_SECONDS:
            self._end(f"no node was there for {DESERTED_SECONDS / 60:.0f} min")

    def _end(self, reason: str) -> None:
        self._close("ended", reason=reason)

    def _close(self, what: str, **facts: Any) -> None:
        if self.phase is not GroupPhase.OVER:
            self.phase = GroupPhase.OVER
            self.orders = replace(self.orders, over=True)
            self.emit(what, "", **facts)

    def _see_ends(self, nodes: Mapping[str, _Node], now: float) -> None:
        codes = {
            who: node
            for who, node in nodes.items()
            if node.code is not None and node.state is not MemberState.LEAVING
        }
        if self.phase is not GroupPhase.ENDING and any(node.code == 0 for node in codes.values()):
            self.phase, self._since = GroupPhase.ENDING, now
        if self.phase is GroupPhase.ENDING:
            late = now - self._since > _SHUTDOWN_SECONDS
            if late or all(node.code is not None for node in nodes.values()):
                self._end(ENDED)
        elif self._watch.settled(bool(codes), now):  # torchrun has given up somewhere
            broken = {who: node for who, node in codes.items() if node.script}
            if broken and not self._excused:  # for good, if it is the script's own fault
                who = min(broken, key=lambda each: (not broken[each].why, each))
                why = broken[who].why or f"it wrote no error; `sky jobs logs` of {who} has what it printed"
                text = f"the script failed on {who}, {STARTS + 1} times in a row: {why}"
                self._close("failed", why=text, exit_code=1)
            else:
                self._restart(now)

    def _see_group(self, nodes: Mapping[str, _Node], now: float) -> None:
        found = self._whole(nodes)
        if found is not None and found[0] != self._meeting:
            self._meeting, self._group = found
            for who in sorted(self._group):
                if not nodes[who].joined:
                    self._members.join(who, now)
                    nodes[who].joined = True  # also with notice, which it keeps
                    self.emit("joined", who)
            self.emit("formed", ", ".join(sorted(self._group)), size=len(self._group))
        staying = [who for who, node in nodes.items() if node.stays]
        if self._group and self._group <= set(nodes) and len(self._group) >= min(len(staying), self.most):
            self._watch.whole(now)
        elif len(staying) < self.least or self.phase is GroupPhase.ENDING:
            self._watch.too_few(now)
        elif self._watch.overdue(len(staying), now):
            self._restart(now)

    def _whole(self, nodes: Mapping[str, _Node]) -> tuple[tuple[int, str], frozenset[str]] | None:
        """The largest group all of whose nodes are there, of this round, and where it met."""
        groups: dict[tuple[int, str, int], set[str]] = {}
        for who, node in nodes.items():
            if node.group is not None and node.group[0] == self.orders.round and node.code is None:
                groups.setdefault(node.group, set()).add(who)
        found = [(key[:2], frozenset(names)) for key, names in groups.items() if len(names) == key[2]]
        return max(found, key=lambda each: len(each[1]), default=None)

    def _restart(self, now: float) -> None:
        """All begin again, from the last checkpoint; ends it if that was of no use several times."""
        try:
            apart = self._watch.restart(self.nodes, now)
        except StashError as error:
            self._close("failed", why=str(error), exit_code=1)
            return
        self.emit("restarted", "", seconds=apart)
        self.orders = replace(self.orders, round=self.orders.round + 1)
        self._group, self._excused = frozenset(), False
        for who in self.nodes:
            node = self._members[who]
            node.group, node.code, node.script, node.why = None, None, False, ""
