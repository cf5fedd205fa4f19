"""Watchers of several nodes: each sends its ranks' cycles to node 0's, which joins them step by step.

They meet as launchers do: an invitation that the ranks carry, and a proof of its key (``core/membership``). Training
never waits for any of it: a node that cannot be reached, or falls silent, is an event, and the others' windows go on
without it.
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from pydantic import Field

from stash.core.membership import Door, RunMember, SignedLink, connect
from stash.core.records.base import Count, Record
from stash.measure.protocol.orders import Invitation
from stash.monitor.accounting import DELAYS
from stash.monitor.collector import JoinedCycles, join_parts
from stash.monitor.records import MachineState
from stash.monitor.strangers import CoreUse

T = TypeVar("T")
_PURPOSE = "windows of a watched run"
LOST = "lost"
"""What a node's silence is."""
_ENDED = b"ended"
"""Node 0's record is closed: what others still see is of no use."""
_NUMBERS = np.dtype("<f4")


class NodeNews(Record):
    """What a node's watcher has seen since the last time."""

    node: Count
    joined: Any = Field(default=None, exclude=True)
    """Further cycles of its ranks, a ``JoinedCycles``; ``None`` if there are none."""
    stages: dict[int, int] = Field(default_factory=dict)
    """What each of its ranks that still train does."""
    ranks: Count = 0
    """Of its own, that it knows."""
    events: tuple[tuple[str, str], ...] = ()
    uses: dict[int, CoreUse] = Field(default_factory=dict)
    """Of its ranks."""
    machine: MachineState | None = None
    ended: bool = False


def pack_news(news: NodeNews) -> bytes:
    """As it is sent: a line of JSON; of cycles another one, then seconds and delays as floats of 4 bytes."""
    own = news.joined
    head = news.model_dump_json().encode()
    if own is None:
        return head
    numbers = json.dumps([own.ranks, own.numbers, own.ended]).encode()
    arrays = (
        np.moveaxis(each, 2, 0).astype(_NUMBERS).tobytes() for each in (own.seconds, own.delays)
    )
    return b"\n".join((head, numbers, b"".join(arrays)))


def unpack_news(content: bytes) -> NodeNews:
    """Raises ValueError or TypeError for what is none."""
    head, *cycles = content.split(b"\n", 2)
    news = NodeNews.model_validate_json(head)
    if not cycles:
        return news
    ranks, numbers, ended = json.loads(cycles[0])
    values: Any = np.frombuffer(cycles[1], _NUMBERS)  # made larger as they are joined
    whole = np.moveaxis(values.reshape(-1, len(numbers), len(ranks)), 0, 2)
    joined = JoinedCycles(
        tuple(ranks), numbers, whole[:, :, :-DELAYS], whole[:, :, -DELAYS:], ended
    )
    return news.model_copy(update={"joined": joined})


class NodeMerge:
    """Joins the cycles of nodes by their numbers. Pure."""

    def __init__(self) -> None:
        self._held: dict[int, list[JoinedCycles]] = {}

    def add_cycles(self, node: int, joined: JoinedCycles) -> None:
        """Add what a node has; one that counts from the start again was restarted with all others."""
        held = self._held.setdefault(node, [])
        if held and joined.numbers[0] <= held[-1].numbers[-1]:
            for each in self._held.values():
                each.clear()
        held.append(joined)

    def drop_node(self, node: int) -> None:
        """Wait for that node no more."""
        self._held.pop(node, None)

    def merge_cycles(self) -> JoinedCycles | None:
        """The cycles that all nodes have by now, each once."""
        if not self._held or not all(self._held.values()):
            return None
        joined = [join_parts(each) for _, each in sorted(self._held.items())]
        common = sorted(set.intersection(*(set(each.numbers) for each in joined)))
        if not common:
            return None
        for node, each in zip(sorted(self._held), joined, strict=True):
            at = int(np.searchsorted(each.numbers, common[-1], side="right"))
            rest = replace(
                each, numbers=each.numbers[at:], seconds=each.seconds[at:], delays=each.delays[at:]
            )
            self._held[node] = [rest] if rest.numbers else []
        places: list[Any] = [
            slice(None)
            if len(each.numbers) == len(common)
            else np.searchsorted(each.numbers, common)
            for each in joined
        ]
        seconds, delays = (
            np.moveaxis(
                np.concatenate(
                    [
                        np.moveaxis(getattr(each, name), 2, 0)[:, at]
                        for each, at in zip(joined, places, strict=True)
                    ],
                    axis=2,
                    dtype=np.float64,
                ),
                0,
                2,
            )
            for name in ("seconds", "delays")
        )
        ranks = np.array([rank for each in joined for rank in each.ranks])
        order = np.argsort(ranks)
        if (order != np.arange(len(order))).any():
            seconds = seconds[:, order]
            delays = delays[:, order]
        ended = min(each.ended for each in joined)
        return JoinedCycles(tuple(ranks[order].tolist()), common, seconds, delays, ended)


def _take_all(come: queue.SimpleQueue[T]) -> list[T]:
    return [come.get() for _ in range(come.qsize())]  # nobody else takes from it


class NodeHost:
    """Node 0's end: lets the others' watchers in, and has what they send."""

    def __init__(self, address: str) -> None:
        """Raises OSError where no socket can listen."""
        self.key = secrets.token_hex(32)
        listener = socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
        self.address, self.port = address, listener.getsockname()[1]
        self._news: queue.SimpleQueue[NodeNews] = queue.SimpleQueue()
        self._links: dict[int, SignedLink] = {}
        self._door = Door(listener, self.key.encode(), _PURPOSE, self._welcome)

    def _welcome(self, connection: socket.socket, member: RunMember) -> None:
        link = SignedLink(connection, member)
        node = -1
        try:
            while True:
                news = unpack_news(link.receive())
                node = news.node
                self._links[node] = link
                self._news.put(news)
                if news.ended:
                    return
        except (OSError, ValueError, TypeError):
            if node >= 0:
                self._news.put(
                    NodeNews(node=node, events=((LOST, f"node {node} is gone"),), ended=True)
                )
        finally:
            self._links.pop(node, None)
            link.close()

    def take_news(self) -> list[NodeNews]:
        """What has come since the last call."""
        return _take_all(self._news)

    def send_to_all(self, content: bytes) -> None:
        """Send the same to all."""
        for link in list(self._links.values()):
            with suppress(OSError):
                link.send(content)

    def close(self) -> None:
        self.send_to_all(_ENDED)
        self._door.close()
        for link in list(self._links.values()):
            link.close()


class NodeGuest:
    """Another node's end: sends what its watcher sees, and has what node 0's asks."""

    def __init__(self, invitation: Invitation, node: int) -> None:
        """Raises OSError where node 0's watcher does not answer, or is another run's."""
        address = (invitation.host, invitation.port)
        key = invitation.key.encode()
        self._link = SignedLink(*connect(address, key, _PURPOSE, f"node {node}"))
        self._asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_released = False
        """Whether node 0's record is closed."""
        threading.Thread(target=self._receive_requests, daemon=True, name="stash node 0").start()

    def _receive_requests(self) -> None:
        with suppress(OSError):
            while (content := self._link.receive()) != _ENDED:
                self._asked.put(content)
            self.is_released = True

    def take_requests(self) -> list[bytes]:
        """What node 0's watcher has sent since the last call."""
        return _take_all(self._asked)

    def send(self, news: NodeNews) -> None:
        """Raises OSError once node 0's watcher is gone."""
        self._link.send(pack_news(news))

    def close(self) -> None:
        self._link.close()
