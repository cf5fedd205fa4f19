"""TCP from node to node, with one connection and with eight, timed where it arrives.

Node 0 against every other and node 1 against node 2, one direction at a time, all other nodes quiet. What
arrives in the first part of a transfer is not counted: slow start, and the burst that a shaped link lets pass
after it was idle.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from stash.core.membership import gathered, join, signature
from stash.core.records.host import Stream, Unmeasured
from stash.measure.probe.exchanges import Mark, equal_parts
from stash.measure.probe.team import Team

FLOWS = (1, 8)
_MIN_SECONDS = 0.4
_SKIPPED = 0.25
_PARTS = 8
_PATIENCE = 5.0
_SILENCE = 3.0
_WORD = 32
_PURPOSE = "transfer of a probe"
_SPACING = 0.002
"""Seconds between two marks; the bytes in between flow evenly enough."""


@dataclass(frozen=True)
class Direction:
    """One direction between two nodes, with so many connections."""

    source: int
    target: int
    flows: int

    @property
    def link(self) -> str:
        return f"streams from node {self.source} to node {self.target}, {self.flows} at once"


def directions(nodes: int, seconds: float) -> tuple[list[Direction], list[Unmeasured]]:
    """What fits into ``seconds``, in order, and what does not."""
    pairs = [(0, other) for other in range(1, nodes)]
    if nodes > 2:
        pairs.insert(1, (1, 2))  # or a slow node 0 would make all pairs alike
    wanted = [Direction(*ends, flows) for a, b in pairs for ends in ((a, b), (b, a)) for flows in FLOWS]
    fits = max(1, int(seconds / _MIN_SECONDS))
    why = "the budget is too small for so many nodes; give a larger --budget"
    return wanted[:fits], [Unmeasured(link=left.link, why=why) for left in wanted[fits:]]


def measure(team: Team, seconds: float, secret: str | None = None) -> list[Stream | Unmeasured]:
    """The transfers that this node received; called by every node's leader. Raises AbsentError.

    ``secret``: of the run, if its nodes have one.
    """
    if team.nodes == 1:
        return [Unmeasured(link="streams", why="there is one node")]
    wanted, left = directions(team.nodes, seconds)
    found: list[Stream | Unmeasured] = list(left) if team.node == 0 else []
    broken: dict[tuple[int, int], str] = {}
    for number, direction in enumerate(wanted):
        ends = (direction.source, direction.target)
        name = f"stream/{number}"
        if ends not in broken:
            received = _play(team, direction, name, seconds / len(wanted), secret)
            found += [received] if received is not None else []
        elif team.node == direction.target:
            found.append(Unmeasured(link=direction.link, why=broken[ends]))
        team.meet(name, seconds + 2 * _PATIENCE, size=team.nodes)
        if ends not in broken and (why := team.wait_for(f"{name}/failed", _PATIENCE)):
            broken[ends] = why
    return found


def _play(
    team: Team, direction: Direction, name: str, seconds: float, secret: str | None
) -> Stream | Unmeasured | None:
    """This node's role in one transfer; the target's answer, ``None`` elsewhere."""
    if team.node == direction.source:
        # When the other end cannot be reached, it is the other end that says so.
        place = team.wait_for(f"{name}/place", 2 * _PATIENCE)
        with contextlib.suppress(OSError):
            if place:
                send(_place(place, team.addresses[direction.target]), direction.flows, seconds, secret)
    if team.node != direction.target:
        return None
    result: Stream | Unmeasured
    try:
        marks = receive(
            team.addresses[team.node], direction.flows, seconds, partial(_announce, team, f"{name}/place"), secret
        )
        timing = equal_parts(marks, _PARTS)
        if timing is None:
            raise OSError("too little arrived to be timed")
        result = Stream(source=direction.source, target=direction.target, flows=direction.flows, timings=(timing,))
    except OSError as error:
        team.publish(f"{name}/place", "")  # nobody is to wait for a listener that never was
        why = f"nothing came from node {direction.source} over TCP ({error}); see that its firewall lets it pass"
        result = Unmeasured(link=direction.link, why=why)
    team.publish(f"{name}/failed", result.why if isinstance(result, Unmeasured) else "")
    return result


def _announce(team: Team, name: str, place: Inlet) -> None:
    team.publish(name, f"{place.port} {place.word}")


def _place(text: str, address: str) -> Inlet:
    """At the other node and nowhere else, whatever somebody put into the store; raises OSError for nonsense."""
    port, _, word = text.partition(" ")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or len(word) != _WORD:
        raise OSError("the other node says what no node of this version says")
    return Inlet(address, int(port), word)


# One transfer ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inlet:
    """Where one transfer is taken in, and the word that was drawn for it."""

    address: str
    port: int
    word: str

    def key(self, secret: str | None) -> bytes:
        """What both ends prove to know: the run's secret and the word. Where nobody gave a secret it is the word
        alone, which is in torch's store.
        """
        return signature((secret or "").encode(), self.word.encode())


def send(place: Inlet, flows: int, seconds: float, secret: str | None = None) -> None:
    """Pour bytes into ``flows`` connections until the other end closes them; raises OSError."""
    where = (place.address, place.port)
    with contextlib.ExitStack() as opened:
        connections = [opened.enter_context(socket.create_connection(where, timeout=_PATIENCE)) for _ in range(flows)]
        for connection in connections:
            join(connection, place.key(secret), _PURPOSE)
        threads = [threading.Thread(target=_pour, args=(c, seconds), daemon=True) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 2 * _PATIENCE)


def _pour(connection: socket.socket, seconds: float) -> None:
    chunk = bytes(1 << 18)
    connection.settimeout(_SILENCE)
    end = time.monotonic() + seconds + _PATIENCE
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            connection.send(chunk)


def receive(
    address: str, flows: int, seconds: float, announce: Callable[[Inlet], None], secret: str | None = None
) -> list[Mark]:
    """Take in ``flows`` connections for ``seconds`` and mark what came after the first part; raises OSError."""
    with contextlib.ExitStack() as opened:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = opened.enter_context(socket.socket(family))
        listener.bind((address, 0))
        listener.listen()
        place = Inlet(address, listener.getsockname()[1], secrets.token_hex(_WORD // 2))
        announce(place)
        found = gathered(listener, place.key(secret), _PURPOSE, flows, time.monotonic() + _PATIENCE)
        connections = [opened.enter_context(each) for each, _ in found]
        if len(connections) < flows:
            raise TimeoutError("timed out")
        sink = _Sink(seconds)
        threads = [threading.Thread(target=sink.drain, args=(c,), daemon=True) for c in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(seconds + 2 * _SILENCE)
    if not sink.marks:
        raise OSError(f"no byte within {_SILENCE:.0f} s")
    return sink.marks


class _Sink:
    """Counts what several threads receive together."""

    def __init__(self, seconds: float) -> None:
        began = time.perf_counter()
        self._from, self._until = began + _SKIPPED * seconds, began + seconds
        self._lock = threading.Lock()
        self._count = 0
        self.marks: list[Mark] = []

    def drain(self, connection: socket.socket) -> None:
        buffer = bytearray(1 << 20)
        connection.settimeout(_SILENCE)
        with contextlib.suppress(OSError):
            while self._add(connection.recv_into(buffer)):
                pass

    def _add(self, count: int) -> bool:
        """Whether to go on after ``count`` more bytes."""
        now = time.perf_counter()
        with self._lock:
            self._count += count
            if now >= self._from and (not self.marks or now - self.marks[-1][0] >= _SPACING):
                self.marks.append((now, self._count))
        return count > 0 and now < self._until
