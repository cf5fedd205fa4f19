"""Which nodes of a rented gang are there, whether they train together, and what is done when they do not.

The judgement of the head: told what nodes say and when they were last there, it says what happened (the lines that a
controller follows) and what nodes are to do. torchrun puts the group together again; where it has not after a while,
or gave up, all agents start anew, in another round. A script that torchrun has started several times, and that failed
each time though nobody went and nothing was saved in between, has failed of itself. Pure, but for its memory: the
clock is given, and nothing is sent.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stash.spot.sync.board import GangOrders

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
_DESERTED = 1800.0
"""Without anybody, until the head ends too, and its machine with it."""
ENDED = "the script ended"


@dataclass
class _Node:
    beats: int
    seen: float
    """When it last beat."""
    group: tuple[int, str, int] | None = None
    """Round, meeting and size of the group in which its script was started last."""
    joined: bool = False
    leaving: bool = False
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
    tell: Callable[..., None]
    """What has happened: ``what``, ``who`` and facts."""
    began: float
    orders: GangOrders = field(default_factory=GangOrders)
    over: bool = False
    """It was told how it ended."""
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _group: frozenset[str] = frozenset()
    _meeting: tuple[int, str] = (0, "")
    _apart: float = 0.0
    _in_a_row: int = 0
    _excused: bool = False
    """Somebody went, or something was saved, since this round began."""
    _failed: float | None = None
    _succeeded: float | None = None
    _stopping: float | None = None
    _last_seen: float = 0.0
    """When anybody was there."""

    def __post_init__(self) -> None:
        self._apart = self._last_seen = self.began

    @property
    def nodes(self) -> tuple[str, ...]:
        """Who is there."""
        return tuple(self._nodes)

    # What is heard ---------------------------------------------------------------------------------------------

    def hear(self, message: Mapping[str, Any], now: float) -> None:
        """One message of a node's."""
        what, who = message["what"], message["who"]
        if what == "up":
            self._nodes[who] = _Node(beats=-1, seen=now)
            return
        node = self._nodes.get(who)
        if node is None:
            return  # it was taken to be gone, and is being replaced
        node.seen = now
        if what == "started":
            node.group = int(message["round"]), str(message["meeting"]), int(message["size"])
        elif what == "listens":
            self.orders = replace(self.orders, listens=True)
        elif what == "saved":
            self._saved(message, who)
        elif what == "notice":
            node.leaving = True
            self.orders = replace(self.orders, wanted=str(message["word"]))
            self.tell("notice", who, seconds=float(message["seconds"]))
        elif what == "withdrawn":
            node.leaving = False
            self.tell("withdrawn", who)
        elif what == "left":
            self._gone(who, "left")
        elif what == "ended" and int(message["round"]) == self.orders.round:
            node.code, node.script = int(message["code"]), bool(message["script"])
            node.why = str(message["why"])

    def stop(self, now: float) -> None:
        """All is to end, saved if that is possible."""
        if self._stopping is None:
            self._stopping = now
            if self.orders.listens and self._group:
                self.orders = replace(self.orders, wanted=secrets.token_hex(8))
            else:
                self._end("interrupted")

    def _saved(self, message: Mapping[str, Any], who: str) -> None:
        word = message.get("word")
        saved = (None if word is None else str(word)), float(message["seconds"])
        self.orders = replace(self.orders, saved=saved)
        self._excused = True
        self.tell("saved", who, seconds=saved[1])
        if self._stopping is not None and saved[0] == self.orders.wanted:
            self._end("interrupted")

    def _gone(self, who: str, how: str) -> None:
        del self._nodes[who]
        self._excused = True
        self.tell(how, who)

    # What follows ----------------------------------------------------------------------------------------------

    def look(self, beats: Mapping[str, int], now: float) -> None:
        """Judge what there is; ``beats`` of who is there."""
        for who, node in list(self._nodes.items()):
            if beats.get(who, node.beats) != node.beats:
                node.beats, node.seen = beats[who], now
            elif now - node.seen > MISSED_SECONDS:
                self._gone(who, "lost")
        if self._nodes:
            self._last_seen = now
        if self.over:
            return
        self._see_ends(now)
        self._see_group(now)
        if self._stopping is not None and now - self._stopping > _SAVING:
            self._end("interrupted")
        elif now - self._last_seen > _DESERTED:
            self._end(f"no node was there for {_DESERTED / 60:.0f} min")

    def _end(self, reason: str) -> None:
        if not self.over:
            self.over = True
            self.orders = replace(self.orders, over=True)
            self.tell("ended", "", reason=reason)

    def _fail(self, why: str) -> None:
        self.over = True
        self.orders = replace(self.orders, over=True)
        self.tell("failed", "", why=why, exit_code=1)

    def _see_ends(self, now: float) -> None:
        codes = {who: node for who, node in self._nodes.items() if node.code is not None and not node.leaving}
        if any(node.code == 0 for node in codes.values()):
            self._succeeded = now if self._succeeded is None else self._succeeded
        if self._succeeded is not None:
            if now - self._succeeded > _SHUTDOWN_SECONDS or all(
                node.code is not None for node in self._nodes.values()
            ):
                self._end(ENDED)
        elif not codes:
            self._failed = None
        elif self._failed is None:
            self._failed = now
        elif now - self._failed > _SETTLE:
            self._judge({who: node for who, node in codes.items() if node.script}, now)

    def _judge(self, broken: dict[str, _Node], now: float) -> None:
        """torchrun has given up somewhere: for good, if it is the script's own fault."""
        if broken and not self._excused:
            who = min(broken, key=lambda each: (not broken[each].why, each))
            why = broken[who].why or f"it wrote no error; `sky jobs logs` of {who} has what it printed"
            self._fail(f"the script failed on {who}, {STARTS + 1} times in a row: {why}")
        else:
            self._again(now)

    def _see_group(self, now: float) -> None:
        whole = self._whole()
        if whole is not None and whole[0] != self._meeting:
            self._meeting, self._group = whole
            for who in sorted(self._group):
                if not self._nodes[who].joined:
                    self._nodes[who].joined = True
                    self.tell("joined", who)
            self.tell("formed", ", ".join(sorted(self._group)), size=len(self._group))
        there = {who for who, node in self._nodes.items() if not node.leaving}
        if self._group and self._group <= set(self._nodes) and len(self._group) >= min(len(there), self.most):
            self._apart, self._in_a_row = now, 0
        elif len(there) < self.least or self._succeeded is not None:
            self._apart = now  # until a successor comes there is nothing to put together
        elif now - self._apart > _PATIENCE + _PATIENCE_EACH * len(there):
            self._again(now)

    def _whole(self) -> tuple[tuple[int, str], frozenset[str]] | None:
        """The largest group all of whose nodes are there, of this round, and where it met."""
        groups: dict[tuple[int, str, int], set[str]] = {}
        for who, node in self._nodes.items():
            if node.group is not None and node.group[0] == self.orders.round and node.code is None:
                groups.setdefault(node.group, set()).add(who)
        found = [(key[:2], frozenset(names)) for key, names in groups.items() if len(names) == key[2]]
        return max(found, key=lambda each: len(each[1]), default=None)

    def _again(self, now: float) -> None:
        """Everybody begins anew, from the last checkpoint; ends it if that was of no use several times."""
        self._in_a_row += 1
        names = ", ".join(sorted(self._nodes))
        if self._in_a_row > _ROUNDS:
            self._fail(f"torchrun put no group of {names} together, {self._in_a_row} times in a row")
            return
        self.tell("restarted", "", seconds=now - self._apart)
        self.orders = replace(self.orders, round=self.orders.round + 1)
        self._group, self._apart, self._failed, self._excused = frozenset(), now, None, False
        for node in self._nodes.values():
            node.group, node.code, node.script, node.why = None, None, False, ""
