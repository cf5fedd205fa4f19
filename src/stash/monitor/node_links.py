"""Watchers of several nodes: each sends its ranks' cycles to node 0's, which joins them step by step.

They meet as launchers do: an invitation that the ranks carry, and a proof of its key (``core/membership``). Every
message is signed, and numbered, so that none counts twice. Training never waits for any of it: a node that cannot be
reached, or falls silent, is an event, and the others' windows go on without it.
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from stash.core.membership import Door, RunMember, hang_up, join
from stash.measure.protocol.orders import Invitation
from stash.monitor.accounting import DELAYS
from stash.monitor.collector import Joined, together

T = TypeVar("T")
_PURPOSE = "windows of a watched run"
LOST = "lost"
"""What a node's silence is."""
_LENGTH = struct.Struct("!IQ")
_TAG = 32
_MAX_BYTES = 1 << 26
_CONNECTS_SECONDS = 5
_NUMBERS = np.dtype("<f4")


@dataclass(frozen=True)
class NodeNews:
    """What a node's watcher has seen since the last time."""

    node: int
    joined: Joined | None = None
    stages: dict[int, int] = field(default_factory=dict)
    """What each of its ranks that still train does."""
    ranks: int = 0
    """Of its own, that it knows."""
    events: tuple[tuple[str, str], ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Of its ranks, by name: what strangers use, what was followed in full."""
    ended: bool = False


def packed_news(news: NodeNews) -> bytes:
    """As it is sent: a line of JSON, then seconds and delays as floats of 4 bytes."""
    row: dict[str, Any] = {
        "node": news.node, "stages": news.stages, "ranks": news.ranks, "events": news.events, "facts": news.facts,
        "ended": news.ended,
    }  # fmt: skip
    arrays = b""
    if news.joined is not None:
        own = news.joined
        row |= {"joined": own.ranks, "numbers": own.numbers, "at": own.ended}
        arrays = b"".join(np.moveaxis(e, 2, 0).astype(_NUMBERS).tobytes() for e in (own.seconds, own.delays))
    return json.dumps(row, separators=(",", ":")).encode() + b"\n" + arrays


def unpacked_news(content: bytes) -> NodeNews:
    """Raises ValueError, KeyError or TypeError for what is none."""
    line, _, arrays = content.partition(b"\n")
    row = json.loads(line)
    joined = None
    if "joined" in row:
        ranks, numbers = tuple(row["joined"]), list(row["numbers"])
        values: Any = np.frombuffer(arrays, _NUMBERS)  # made larger as they are joined
        stages = len(values) // (len(ranks) * len(numbers)) - DELAYS
        whole = np.moveaxis(values.reshape(stages + DELAYS, len(numbers), len(ranks)), 0, 2)
        seconds, delays = whole[:, :, :stages], whole[:, :, stages:]
        joined = Joined(ranks, numbers, seconds, delays, float(row["at"]))
    return NodeNews(
        int(row["node"]), joined, {int(rank): int(stage) for rank, stage in row["stages"].items()}, int(row["ranks"]),
        tuple((str(what), str(text)) for what, text in row["events"]), dict(row["facts"]), bool(row["ended"]),
    )  # fmt: skip


class NodeMerge:
    """Joins the cycles of nodes by their numbers. Pure."""

    def __init__(self) -> None:
        self._held: dict[int, list[Joined]] = {}

    def take(self, node: int, joined: Joined) -> None:
        """Add what a node has; one that counts from the start again was restarted with all others."""
        held = self._held.setdefault(node, [])
        if held and joined.numbers[0] <= held[-1].numbers[-1]:
            for each in self._held.values():
                each.clear()
        held.append(joined)

    def leave(self, node: int) -> None:
        """Wait for that node no more."""
        self._held.pop(node, None)

    def merged(self) -> Joined | None:
        """The cycles that all nodes have by now, each once."""
        if not self._held or not all(self._held.values()):
            return None
        joined = [together(each) for _, each in sorted(self._held.items())]
        common = sorted(set.intersection(*(set(each.numbers) for each in joined)))
        if not common:
            return None
        for node, each in zip(sorted(self._held), joined, strict=True):
            self._held[node] = [rest] if (rest := _after(each, common[-1])) is not None else []
        places: list[Any] = [
            slice(None) if len(each.numbers) == len(common) else np.searchsorted(each.numbers, common)
            for each in joined
        ]
        seconds, delays = (
            np.moveaxis(np.concatenate([
                np.moveaxis(getattr(each, name), 2, 0)[:, at] for each, at in zip(joined, places, strict=True)
            ], axis=2, dtype=np.float64), 0, 2)
            for name in ("seconds", "delays")
        )  # fmt: skip
        ranks = np.array([rank for each in joined for rank in each.ranks])
        order = np.argsort(ranks)
        if (order != np.arange(len(order))).any():
            seconds, delays = seconds[:, order], delays[:, order]
        ended = min(each.ended for each in joined)
        return Joined(tuple(ranks[order].tolist()), common, seconds, delays, ended)


def _after(joined: Joined, number: int) -> Joined | None:
    at = int(np.searchsorted(joined.numbers, number, side="right"))
    if at == len(joined.numbers):
        return None
    return Joined(joined.ranks, joined.numbers[at:], joined.seconds[at:], joined.delays[at:], joined.ended)


class _Wire:
    """One connection, from the side of a member that has proven itself; sends and receives whole messages."""

    def __init__(self, link: socket.socket, member: RunMember) -> None:
        self._link, self._member = link, member
        self._sent = self._got = 0
        self._lock = threading.Lock()
        link.settimeout(None)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _CONNECTS_SECONDS, 0))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, content: bytes) -> None:
        """Raises OSError."""
        with self._lock:
            self._sent += 1
            head = _LENGTH.pack(len(content), self._sent)
            self._link.sendall(head + content + self._member.sign(head + content))

    def receive(self) -> bytes:
        """The next message, however long it takes; raises OSError for none, or one that is not of this connection."""
        head = self._exactly(_LENGTH.size)
        length, number = _LENGTH.unpack(head)
        if length > _MAX_BYTES or number != self._got + 1:
            raise ConnectionError("not what a watcher sends")
        content = self._exactly(length)
        if not self._member.signed(head + content, self._exactly(_TAG)):
            raise ConnectionError("its signature is wrong")
        self._got = number
        return content

    def _exactly(self, size: int) -> bytes:
        parts, left = [], size
        while left:
            part = self._link.recv(min(left, 1 << 20))
            if not part:
                raise ConnectionError("the other end closed the connection")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        hang_up(self._link)
        self._link.close()


def _taken(come: queue.SimpleQueue[T]) -> list[T]:
    return [come.get() for _ in range(come.qsize())]  # nobody else takes from it


class NodeHost:
    """Node 0's end: lets the others' watchers in, and has what they send."""

    def __init__(self, address: str) -> None:
        """Raises OSError where no socket can listen."""
        self.key = secrets.token_hex(32)
        listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        self.address, self.port = address, listener.getsockname()[1]
        self._news: queue.SimpleQueue[NodeNews] = queue.SimpleQueue()
        self._wires: dict[int, _Wire] = {}
        self._door = Door(listener, self.key.encode(), _PURPOSE, self._welcome)

    def _welcome(self, link: socket.socket, member: RunMember) -> None:
        wire, node = _Wire(link, member), -1
        try:
            while True:
                news = unpacked_news(wire.receive())
                node = news.node
                self._wires[node] = wire
                self._news.put(news)
                if news.ended:
                    return
        except (OSError, ValueError, KeyError, TypeError):
            if node >= 0:
                self._news.put(NodeNews(node, events=((LOST, f"node {node} is gone"),), ended=True))
        finally:
            self._wires.pop(node, None)
            wire.close()

    def news(self) -> list[NodeNews]:
        """What has come since the last call."""
        return _taken(self._news)

    def tell(self, content: bytes) -> None:
        """Send the same to all."""
        for wire in list(self._wires.values()):
            with suppress(OSError):
                wire.send(content)

    def close(self) -> None:
        self._door.close()
        for wire in list(self._wires.values()):
            wire.close()


class NodeGuest:
    """Another node's end: sends what its watcher sees, and has what node 0's asks."""

    def __init__(self, invitation: Invitation, node: int) -> None:
        """Raises OSError where node 0's watcher does not answer, or is another run's."""
        link = socket.create_connection((invitation.host, invitation.port), timeout=_CONNECTS_SECONDS)
        try:
            self._wire = _Wire(link, join(link, invitation.key.encode(), _PURPOSE, f"node {node}"))
        except OSError:
            link.close()
            raise
        self._asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True, name="stash node 0").start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                self._asked.put(self._wire.receive())

    def asked(self) -> list[bytes]:
        """What node 0's watcher has sent since the last call."""
        return _taken(self._asked)

    def send(self, news: NodeNews) -> None:
        """Raises OSError once node 0's watcher is gone."""
        self._wire.send(packed_news(news))

    def close(self) -> None:
        self._wire.close()
