"""Where torchrun's agents run, and the store at which they meet: this machine, or hosts of an emulated cluster.

A place has a seat for every node, and can lose the machine under one. What runs there it does not know.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from stash.core.errors import StashError
from stash.lab.testbed.bed import Testbed
from stash.spot.emulate.build_rehearsal import EmulatedLinks
from stash.spot.sync.meeting import READY, meeting_store

_HERE = "127.0.0.1"
_PORT = 29400
_START_SECONDS = 120.0


@dataclass(frozen=True)
class AgentSeat:
    """What it takes to start a node's agent."""

    address: str
    """Of the node, for all others."""
    enter: tuple[str, ...] = ()
    """Stands before the command."""
    environment: Mapping[str, str] = field(default_factory=dict)


class AgentPlace(Protocol):
    """What agents ask of where they run."""

    def start(self) -> str:
        """Get ready; where agents meet, as HOST:PORT. Raises StashError."""

    def seat(self, name: str) -> AgentSeat:
        """A node's, the same as before if it had one; raises StashError if there is none left."""

    def lose(self, name: str) -> None:
        """The machine of a node is gone for all others, with whatever ran there."""

    def close(self) -> None:
        """Leave nothing behind; harmless when done already."""


class ThisMachine:
    """All nodes are processes side by side: whoever loses one ends its processes."""

    def __init__(self) -> None:
        self._store: TCPStore | None = None

    def start(self) -> str:
        self._store = meeting_store(_HERE, 0)
        return f"{_HERE}:{self._store.port}"

    def seat(self, name: str) -> AgentSeat:
        return AgentSeat(_HERE)

    def lose(self, name: str) -> None:
        """Nothing goes with the processes."""

    def close(self) -> None:
        self._store = None


class EmulatedHosts:
    """A host for every node, spare ones for successors, and one for the store, as on an on-demand head."""

    def __init__(self, nodes: Sequence[str], spares: int, links: EmulatedLinks) -> None:
        self._hosts = {name: number for number, name in enumerate(nodes, start=1)}
        hosts = 1 + len(nodes) + spares
        self._free = list(range(1 + len(nodes), hosts))
        head = {0: {"network": links.head_rate}}
        self._bed = Testbed(hosts, network=links.node_rate, overrides=head, verify=False)

    def start(self) -> str:
        self._bed.start()
        address = self._bed.address(0)
        store = self._bed.run((sys.executable, "-m", "stash.spot.sync.meeting", address, str(_PORT)), 0)
        patience = time.monotonic() + _START_SECONDS
        while READY not in store.output:
            if store.poll() is not None or time.monotonic() > patience:
                said = store.output.strip().splitlines() or ["it said nothing"]
                raise StashError(f"the store did not start on the emulated head: {said[-1]}")
            time.sleep(0.1)
        return f"{address}:{_PORT}"

    def seat(self, name: str) -> AgentSeat:
        if name not in self._hosts:
            if not self._free:  # which the number of spares should rule out
                raise StashError(f"there is no emulated host left for {name}")
            self._hosts[name] = self._free.pop(0)
        host = self._hosts[name]
        return AgentSeat(self._bed.address(host), self._bed.command((), host), self._bed.environment(host))

    def lose(self, name: str) -> None:
        self._bed.kill(self._hosts[name])

    def close(self) -> None:
        self._bed.close()
