"""A watcher's place among those of the job's other nodes: node 0 gathers, the others hand on. Alone, it does neither.

What ranks of other nodes do is known here by what their watchers sent last. Decides who waits for whom, and for how
long; how bytes cross is ``node_links``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.stamped import StepStage
from stash.monitor.collector import Collector, JoinedCycles
from stash.monitor.node_links import LOST, NodeGuest, NodeHost, NodeMerge, NodeNews
from stash.monitor.records import MachineState
from stash.monitor.strangers import CoreUse

_WAITS_SECONDS = 30.0
"""Node 0 waits so long for the others' first steps; then it goes on with those that are here."""
_HOLDS_SECONDS = 150.0
"""Another node keeps its windows so long for node 0; then it writes a record of its own."""
_MAX_HELD = 2000
_SILENT_SECONDS = 15.0
"""Without a word from a node's watcher, which has one at every look, it is gone: as launchers have it."""


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
            self._hand_on(joined, uses=uses, machine=machine)
            return None
        if self._link is None:
            return joined
        self._receive()
        for node, (news, seen) in list(self._nodes.items()):
            if self._clock() - seen > _SILENT_SECONDS and not news.ended:
                self._handle_news(
                    NodeNews(node=node, events=((LOST, f"node {node} is gone"),), ended=True)
                )
        if joined is not None:
            self._merge.add_cycles(0, joined)
        ranks = len(self._collector.ranks) + sum(news.ranks for news, _ in self._nodes.values())
        if (
            ranks < self._collector.expected_ranks
            and self._clock() - self._place.since < _WAITS_SECONDS
        ):
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
                    Invitation(host.address, host.port, host.key).write(self._folder)
        except OSError as error:
            self._stay_alone(f"the watchers of other nodes cannot be reached ({error})")

    def _stay_alone(self, why: str) -> None:
        self._place = replace(self._place, is_alone=True)
        self._tell("alone", f"{why}; this node has a record of its own")

    def add_event(self, what: str, text: str) -> None:
        """Something that node 0's record is to have."""
        self._events.append((what, text))

    def _hand_on(self, joined: JoinedCycles | None, **more: Any) -> None:
        if joined is not None:
            self._held.append(joined)
            del self._held[:-_MAX_HELD]
        if not isinstance(self._link, NodeGuest):
            return
        stages = {r: int(stage) for r, stage in self._collector.rank_stages().items()}
        local = len(self._collector.ranks)
        news = NodeNews(node=self.node, stages=stages, ranks=local)
        try:
            for each in self._held[:-1]:
                self._link.send(news.model_copy(update={"joined": each}))
            last = {
                "joined": self._held[-1] if self._held else None,
                "events": tuple(self._events),
                **more,
            }
            self._link.send(news.model_copy(update=last))
            self._events.clear()
            self._held.clear()
        except OSError as error:
            if not self._link.is_released:
                self._stay_alone(f"node 0's watcher is gone ({error})")

    def _receive(self) -> None:
        for news in self._link.take_news() if isinstance(self._link, NodeHost) else []:
            self._handle_news(news)

    def _handle_news(self, news: NodeNews) -> None:
        for what, text in news.events:
            self._tell(what, text if what == LOST and news.ended else f"node {news.node}: {text}")
        if news.joined is not None:
            self._merge.add_cycles(news.node, news.joined)
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
        return self._link.take_requests() if isinstance(self._link, NodeGuest) else []

    def have_others_ended(self) -> bool:
        """Node 0: whether all others have ended by now. Elsewhere: say so, and be done."""
        if self.hands_on:
            self._hand_on(None, ended=True)
        self._receive()
        return all(news.ended for news, _ in self._nodes.values())

    def merge_rest(self) -> JoinedCycles | None:
        """What the others have sent last, joined."""
        return self._merge.merge_cycles()

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
