"""Watchers of several nodes: node 0's gathers what the others' see, and joins all ranks' cycles step by step.

They meet as launchers do: an invitation that the ranks carry, and a proof of its key (``core/membership``). Training
never waits for any of it: a node that cannot be reached, or falls silent, is an event, and the others' windows go on
without it. Alone, a watcher does neither.
"""

from __future__ import annotations

import json
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from stash.core.membership import Door, RunMember, SignedLink, connect
from stash.core.records.base import Count, Record
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.stamped import StepStage
from stash.monitor.accounting import DELAYS
from stash.monitor.collector import Collector, JoinedCycles, join_parts
from stash.monitor.records import MachineState
from stash.monitor.strangers import CoreUse

_WAITS_SECONDS = 30.0
"""Node 0 waits so long for the others' first steps; then it goes on with those that are here."""
_HOLDS_SECONDS = 150.0
"""Another node keeps its windows so long for node 0; then it writes a record of its own."""
_MAX_HELD = 2000
_SILENT_SECONDS = 15.0
"""Without a word from a node's watcher, which has one at every look, it is gone: as launchers have it."""
_PURPOSE = "windows of a watched run"
_ENDED = b"ended"
"""Node 0's record is closed: what others still see is of no use."""
_NUMBERS = np.dtype("<f4")


class NodeNews(Record):
    """What a node's watcher has seen since the last time, beside cycles."""

    node: Count
    stages: dict[int, int] = Field(default_factory=dict)
    """What each of its ranks that still train does."""
    ranks: Count = 0
    """Of its own, that it knows."""
    events: tuple[tuple[str, str], ...] = ()
    uses: dict[int, CoreUse] = Field(default_factory=dict)
    """Of its ranks."""
    machine: MachineState | None = None
    ended: bool = False
    lost: bool = False
    """Whether it ended without a word: this is what node 0's watcher makes of that."""


def pack_news(news: NodeNews, joined: JoinedCycles | None) -> bytes:
    """As it is sent: a line of JSON; of cycles another one, then seconds and delays as floats of 4 bytes."""
    head = news.model_dump_json().encode()
    if joined is None:
        return head
    numbers = json.dumps([joined.ranks, joined.numbers, joined.ended]).encode()
    values = np.concatenate([joined.seconds, joined.delays], axis=2).astype(_NUMBERS)
    return b"\n".join((head, numbers, values.tobytes()))


def unpack_news(content: bytes) -> tuple[NodeNews, JoinedCycles | None]:
    """Raises ValueError or TypeError for what is none."""
    head, *cycles = content.split(b"\n", 2)
    news = NodeNews.model_validate_json(head)
    if not cycles:
        return news, None
    ranks, numbers, ended = json.loads(cycles[0])
    values = np.frombuffer(cycles[1], _NUMBERS).astype(np.float64)
    whole = values.reshape(len(numbers), len(ranks), -1)
    return news, JoinedCycles(
        tuple(ranks), numbers, whole[:, :, :-DELAYS], whole[:, :, -DELAYS:], ended
    )


class NodeMerge:
    """Joins the cycles of nodes by their numbers. Pure."""

    def __init__(self) -> None:
        self._held: dict[int, JoinedCycles | None] = {}

    def add_cycles(self, node: int, joined: JoinedCycles) -> None:
        """Add what a node has; one that counts from the start again was restarted with all others."""
        held = self._held.get(node)
        if held is not None and joined.numbers[0] <= held.numbers[-1]:
            self._held = dict.fromkeys(self._held)
            held = None
        self._held[node] = joined if held is None else join_parts([held, joined])

    def drop_node(self, node: int) -> None:
        """Wait for that node no more."""
        self._held.pop(node, None)

    def merge_cycles(self) -> JoinedCycles | None:
        """The cycles that all nodes have by now, each once."""
        nodes = sorted(self._held)
        parts = [part for node in nodes if (part := self._held[node]) is not None]
        if not parts or len(parts) < len(nodes):
            return None
        common = sorted(set.intersection(*(set(part.numbers) for part in parts)))
        if not common:
            return None
        picked = []
        for node, part in zip(nodes, parts, strict=True):
            places = np.searchsorted(part.numbers, common)
            rest = _pick(part, np.arange(places[-1] + 1, len(part.numbers)))
            self._held[node] = rest if rest.numbers else None
            picked.append(part if len(part.numbers) == len(common) else _pick(part, places))
        ranks = np.array([rank for part in parts for rank in part.ranks])
        order = np.argsort(ranks)
        return JoinedCycles(
            tuple(ranks[order].tolist()),
            common,
            np.concatenate([part.seconds for part in picked], axis=1)[:, order],
            np.concatenate([part.delays for part in picked], axis=1)[:, order],
            min(part.ended for part in parts),
        )


def _pick(part: JoinedCycles, places: np.ndarray) -> JoinedCycles:
    return replace(
        part,
        numbers=[part.numbers[place] for place in places],
        seconds=part.seconds[places],
        delays=part.delays[places],
    )


class NodeHost:
    """Node 0's end: lets the others' watchers in, and has what they send."""

    def __init__(self, address: str) -> None:
        """Raises OSError where no socket can listen."""
        key = secrets.token_hex(32)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, 0), family=family)
        self.invitation = Invitation(address, listener.getsockname()[1], key)
        self.news: queue.SimpleQueue[tuple[NodeNews, JoinedCycles | None]] = queue.SimpleQueue()
        self._links: dict[int, SignedLink] = {}
        self._door = Door(listener, key.encode(), _PURPOSE, self._welcome)

    def _welcome(self, connection: socket.socket, member: RunMember) -> None:
        link = SignedLink(connection, member)
        node = -1
        try:
            while True:
                news, joined = unpack_news(link.receive())
                node = news.node
                self._links[node] = link
                self.news.put((news, joined))
                if news.ended:
                    return
        except (OSError, ValueError, TypeError):
            if node >= 0:
                self.news.put((NodeNews(node=node, ended=True, lost=True), None))
        finally:
            self._links.pop(node, None)
            link.close()

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
        self.requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.is_released = False
        """Whether node 0's record is closed."""
        threading.Thread(target=self._receive_requests, daemon=True, name="stash node 0").start()

    def _receive_requests(self) -> None:
        with suppress(OSError):
            while (content := self._link.receive()) != _ENDED:
                self.requests.put(content)
            self.is_released = True

    def send(self, news: NodeNews, joined: JoinedCycles | None = None) -> None:
        """Raises OSError once node 0's watcher is gone."""
        self._link.send(pack_news(news, joined))

    def close(self) -> None:
        self._link.close()


@dataclass(frozen=True)
class _NodePlace:
    """Where this watcher stands."""

    node: int | None = None
    """``None`` until ranks say that there are several nodes."""
    since: float = 0.0
    """When they did."""
    is_alone: bool = False


class NodeTeam:
    """Gathers cycles of all nodes where this is node 0, and hands them on elsewhere."""

    def __init__(
        self,
        folder: Path,
        collector: Collector,
        tell: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._folder = RunFolder(folder)
        self._collector = collector
        self._tell = tell
        self._clock = clock
        self._place = _NodePlace()
        self._link: NodeHost | NodeGuest | None = None
        self._merge = NodeMerge()
        self._held: list[JoinedCycles] = []
        self._events: list[tuple[str, str]] = []
        self._nodes: dict[int, tuple[NodeNews, float]] = {}
        """By node, the last news of it, and when they came."""
        self.uses: dict[int, CoreUse] = {}
        """Of ranks on other nodes."""
        self.machines: dict[int, MachineState] = {}
        """Of other nodes, what their machines did of late."""

    @property
    def node(self) -> int:
        return self._place.node or 0

    @property
    def hands_on(self) -> bool:
        """Whether node 0 has what this one sees."""
        return self.node != 0 and not self._place.is_alone

    def gather(
        self, joined: JoinedCycles | None, uses: Mapping[int, CoreUse], machine: MachineState | None
    ) -> JoinedCycles | None:
        """The cycles that are to be accounted for here, now that this node has ``joined`` more."""
        self._meet_others()
        if self.hands_on:
            self._hand_on(joined, uses, machine)
            return None
        if self._link is None:
            return joined
        self._receive()
        now = self._clock()
        for node, (news, seen) in list(self._nodes.items()):
            if now - seen > _SILENT_SECONDS and not news.ended:
                self._handle_news(NodeNews(node=node, ended=True, lost=True))
        if joined is not None:
            self._merge.add_cycles(0, joined)
        ranks = len(self._collector.ranks) + sum(news.ranks for news, _ in self._nodes.values())
        if ranks < self._collector.expected_ranks and now - self._place.since < _WAITS_SECONDS:
            return None
        return self._merge.merge_cycles()

    def _meet_others(self) -> None:
        if self._place.is_alone or self._link is not None or not self._collector.ranks:
            return
        try:
            if self._place.node is not None:
                if (invitation := Invitation.load_meeting(self._folder)) is not None:
                    self._link = NodeGuest(invitation, self._place.node)
                elif self._clock() - self._place.since > _HOLDS_SECONDS:
                    self._stay_alone("node 0 is not watched")
            elif (neighbours := Neighbours.load(self._folder)) is not None:
                self._place = _NodePlace(neighbours.node, self._clock())
                if neighbours.node == 0:
                    self._link = host = NodeHost(neighbours.address)
                    host.invitation.write(self._folder)
        except OSError as error:
            self._stay_alone(f"the watchers of other nodes cannot be reached ({error})")

    def _stay_alone(self, why: str) -> None:
        self._place = replace(self._place, is_alone=True)
        self._tell("alone", f"{why}; this node has a record of its own")

    def add_event(self, what: str, text: str) -> None:
        """Something that node 0's record is to have."""
        self._events.append((what, text))

    def _hand_on(
        self,
        joined: JoinedCycles | None,
        uses: Mapping[int, CoreUse],
        machine: MachineState | None,
        ended: bool = False,
    ) -> None:
        if joined is not None:
            self._held.append(joined)
            del self._held[:-_MAX_HELD]
        if not isinstance(self._link, NodeGuest):
            return
        news = NodeNews(
            node=self.node,
            stages={r: int(stage) for r, stage in self._collector.rank_stages().items()},
            ranks=len(self._collector.ranks),
            events=tuple(self._events),
            uses=dict(uses),
            machine=machine,
            ended=ended,
        )
        try:
            for part in self._held:
                self._link.send(NodeNews(node=self.node, ranks=news.ranks), part)
            self._link.send(news)
            self._events.clear()
            self._held.clear()
        except OSError as error:
            if not self._link.is_released:
                self._stay_alone(f"node 0's watcher is gone ({error})")

    def _receive(self) -> None:
        if isinstance(self._link, NodeHost):
            for _ in range(self._link.news.qsize()):  # nobody else takes from it
                self._handle_news(*self._link.news.get())

    def _handle_news(self, news: NodeNews, joined: JoinedCycles | None = None) -> None:
        if news.lost:
            self._tell("lost", f"node {news.node} is gone")
        for what, text in news.events:
            self._tell(what, f"node {news.node}: {text}")
        if joined is not None:
            self._merge.add_cycles(news.node, joined)
        self.uses.update(news.uses)
        if news.machine is not None:
            self.machines[news.node] = news.machine
        self._nodes[news.node] = news, self._clock()
        if news.ended:
            self._merge.drop_node(news.node)
            self.machines.pop(news.node, None)

    def rank_stages(self) -> dict[int, StepStage]:
        """What every rank that still trains does, on all nodes."""
        others = [news.stages for news, _ in self._nodes.values() if not news.ended]
        found = {rank: StepStage(stage) for stages in others for rank, stage in stages.items()}
        return self._collector.rank_stages() | found

    def count_nodes(self, otherwise: int) -> int:
        """How many nodes are known of."""
        return 1 + len(self._nodes) if self._nodes else otherwise

    def tell_nodes(self, content: bytes) -> None:
        """Let the other nodes' watchers know."""
        if isinstance(self._link, NodeHost):
            self._link.send_to_all(content)

    def take_requests(self) -> list[bytes]:
        """What node 0's watcher lets this one know."""
        if not isinstance(self._link, NodeGuest):
            return []
        return [self._link.requests.get() for _ in range(self._link.requests.qsize())]

    def have_others_ended(self) -> bool:
        """Node 0: whether all others have ended by now. Elsewhere: say so, and be done."""
        if self.hands_on:
            self._hand_on(None, {}, None, ended=True)
        self._receive()
        return all(news.ended for news, _ in self._nodes.values())

    def merge_rest(self) -> JoinedCycles | None:
        """What the others have sent last, joined."""
        return self._merge.merge_cycles()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
