"""A watcher's place among those of the job's other nodes: node 0 gathers, the others hand on. Alone, it does neither.

What ranks of other nodes do is known here by what their watchers sent last. Decides who waits for whom, and for how
long; how bytes cross is ``node_links``'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.stamped import StepStage
from stash.monitor.collector import Collector, Joined
from stash.monitor.node_links import LOST, NodeGuest, NodeHost, NodeMerge, NodeNews
from stash.monitor.records import MachineState
from stash.monitor.strangers import CoreUse, as_facts, of_facts

_WAITS_SECONDS = 30.0
"""Node 0 waits so long for the others' first steps; then it goes on with those that are here."""
_HOLDS_SECONDS = 150.0
"""Another node keeps its windows so long for node 0; then it writes a record of its own."""
_MAX_HELD = 2000
_ENDED = b"ended"
"""Node 0's record is closed: what others still see is of no use."""
_SILENT_SECONDS = 15.0
"""Without a word from a node's watcher, which has one at every look, it is gone: as launchers have it."""


class NodeTeam:
    """Gathers cycles of all nodes where this is node 0, and hands them on elsewhere."""

    def __init__(
        self, folder: Path, collector: Collector, tell: Callable[[str, str], None], clock: Callable[[], float]
    ) -> None:
        self._folder, self._collector, self._tell, self._clock = RunFolder(folder), collector, tell, clock
        self.node: int | None = None
        """``None`` until ranks say that there are several nodes."""
        self._host: NodeHost | None = None
        self._guest: NodeGuest | None = None
        self._alone = self._released = False
        self._asked: list[bytes] = []
        self._since: float | None = None
        self._merge = NodeMerge()
        self._held: list[Joined] = []
        self._nodes: dict[int, NodeNews] = {}
        self._seen: dict[int, float] = {}
        self._events: list[tuple[str, str]] = []
        self.uses: dict[int, CoreUse] = {}
        """Of ranks on other nodes."""
        self.machines: dict[int, MachineState] = {}
        """Of other nodes, what their machines did of late."""
        self.facts: list[Mapping[str, Any]] = []
        """What other nodes' ranks were seen to do, as their watchers sent it; whoever reads it empties it."""

    @property
    def hands_on(self) -> bool:
        """Whether node 0 has what this one sees."""
        return self.node not in (None, 0) and not self._alone

    def gather(self, joined: Joined | None, facts: dict[str, Any]) -> Joined | None:
        """The cycles that are to be accounted for here, now that this node has ``joined`` more."""
        self._meet()
        if self.hands_on:
            return self._hand_on(joined, facts)
        if self._host is None:
            return joined
        for news in self._host.news():
            self._take(news)
        for node, seen in self._seen.items():
            if self._clock() - seen > _SILENT_SECONDS and not self._nodes[node].ended:
                self._take(NodeNews(node, events=((LOST, f"node {node} is gone"),), ended=True))
        if joined is not None:
            self._merge.take(0, joined)
        ranks = len(self._collector.ranks) + sum(news.ranks for news in self._nodes.values())
        missing = ranks < self._collector.expected
        if missing and self._since is not None and self._clock() - self._since < _WAITS_SECONDS:
            return None
        return self._merge.merged()

    def _meet(self) -> None:
        local = len(self._collector.ranks)
        if self._alone or self._host is not None or self._guest is not None or not local:
            return
        if self.node is None:
            neighbours = Neighbours.read(self._folder)
            if neighbours is None:
                return
            self.node, self._since = neighbours.node, self._clock()
            if self.node == 0:
                try:
                    self._host = NodeHost(neighbours.address)
                except OSError as error:
                    self._stay_alone(f"the other nodes cannot be watched ({neighbours.address}: {error})")
                    return
                Invitation(self._host.address, self._host.port, self._host.key).write(self._folder)
            return
        invitation = Invitation.brought(self._folder)
        if invitation is not None:
            try:
                self._guest = NodeGuest(invitation, self.node)
            except OSError as error:
                self._stay_alone(f"node 0's watcher does not answer ({error}); this node has a record of its own")
        elif self._since is not None and self._clock() - self._since > _HOLDS_SECONDS:
            self._stay_alone("node 0 is not watched; this node has a record of its own")

    def _stay_alone(self, why: str) -> None:
        self._alone, self._guest = True, None
        self._tell("alone", why)

    def event(self, what: str, text: str) -> None:
        """Something that node 0's record is to have."""
        self._events.append((what, text))

    def _hand_on(self, joined: Joined | None, facts: dict[str, Any], ended: bool = False) -> Joined | None:
        if joined is not None:
            self._held.append(joined)
            del self._held[:-_MAX_HELD]
        if self._guest is None:
            return None
        stages, local = {r: int(stage) for r, stage in self._collector.stages().items()}, len(self._collector.ranks)
        assert self.node is not None
        try:
            for each in self._held[:-1]:
                self._guest.send(NodeNews(self.node, each, stages, local))
            self._guest.send(NodeNews(
                self.node, self._held[-1] if self._held else None, stages, local, tuple(self._events), facts, ended
            ))  # fmt: skip
            self._events.clear()
            self._held.clear()
        except OSError as error:
            self._asked = self.asked()
            if not self._released:
                self._stay_alone(f"node 0's watcher is gone ({error}); this node goes on with a record of its own")
        return None

    def _take(self, news: NodeNews) -> None:
        for what, text in news.events:
            self._tell(what, text if what == LOST and news.ended else f"node {news.node}: {text}")
        if news.joined is not None:
            self._merge.take(news.node, news.joined)
        if news.facts:
            self.uses |= of_facts(news.facts.get("uses", {}))
            if "machine" in news.facts:
                self.machines[news.node] = MachineState.model_validate(news.facts["machine"])
            self.facts.append(news.facts)
        self._nodes[news.node], self._seen[news.node] = news, self._clock()
        if news.ended:
            self._merge.leave(news.node)
            self.machines.pop(news.node, None)

    def stages(self) -> dict[int, StepStage]:
        """What every rank that still trains does, on all nodes."""
        found = self._collector.stages()
        for news in self._nodes.values():
            if not news.ended:
                found |= {rank: StepStage(stage) for rank, stage in news.stages.items()}
        return found

    def nodes(self, otherwise: int) -> int:
        """How many nodes are known of."""
        return 1 + len(self._nodes) if self._nodes else otherwise

    def tell(self, content: bytes) -> None:
        """Let the other nodes' watchers know."""
        if self._host is not None:
            self._host.tell(content)

    def asked(self) -> list[bytes]:
        """What node 0's watcher lets this one know."""
        found, self._asked = self._asked + (self._guest.asked() if self._guest is not None else []), []
        self._released = self._released or _ENDED in found
        return [each for each in found if each != _ENDED]

    def ends(self) -> bool:
        """Node 0: whether all others have ended by now. Elsewhere: say so, and be done."""
        if self.hands_on and self._guest is not None:
            self._hand_on(None, {}, ended=True)
        for news in self._host.news() if self._host is not None else []:
            self._take(news)
        return all(news.ended for news in self._nodes.values())

    def rest(self) -> Joined | None:
        """What the others have sent last, joined."""
        return self._merge.merged() if self._host is not None else None

    def close(self) -> None:
        self.tell(_ENDED)
        for end in (self._host, self._guest):
            if end is not None:
                end.close()


def facts_of(
    uses: Mapping[int, CoreUse], machine: MachineState | None, pieces: Mapping[int, tuple[int, tuple[float, ...]]]
) -> dict[str, Any]:
    """To be sent to node 0: cores that ranks use, their machine, and steps that were followed in full, by rank."""
    found: dict[str, Any] = {}
    if uses:
        found["uses"] = as_facts(uses)
    if machine is not None:
        found["machine"] = machine.model_dump(mode="json")
    if pieces:
        found["pieces"] = {str(rank): [number, *each] for rank, (number, each) in pieces.items()}
    return found
