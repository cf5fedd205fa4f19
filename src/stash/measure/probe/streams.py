"""TCP from node to node, with one connection and with eight, timed where it arrives.

In rounds of pairs that share no node, one direction at a time: log2 rounds, not all pairs. What
arrives in the first part of a transfer is not counted: slow start, and the burst that a shaped link lets pass
after it was idle; nor what arrives after its time, when some of its connections have ended and others have not.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stash.core.membership import connect, gather_members, signature
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


def plan_slots(nodes: int, seconds: float) -> tuple[list[tuple[Direction, ...]], list[Unmeasured]]:
    """What fits into ``seconds``, in order, and what does not; the directions of a slot run at the same time.

    Pairs share no node, in log2 rounds and one more: every node meets several others, and one whose every pair is
    slow is the odd one out, whatever its number.
    """
    wanted = [
        tuple(Direction(a, b, flows) if forth else Direction(b, a, flows) for a, b in pairs)
        for pairs in pair_rounds(nodes)
        for forth in (True, False)
        for flows in FLOWS
    ]
    fits = max(1, int(seconds / _MIN_SECONDS))
    why = "the budget is too small for so many nodes; give a larger --budget"
    left = [
        Unmeasured(link=direction.link, why=why) for slot in wanted[fits:] for direction in slot
    ]
    return wanted[:fits], left


def pair_rounds(nodes: int) -> list[tuple[tuple[int, int], ...]]:
    """Rounds of a round robin by the circle method: all of them up to four nodes, else log2(nodes) + 1."""
    seats = [*range(nodes), *([None] if nodes % 2 else [])]
    every: list[tuple[tuple[int, int], ...]] = []
    for _ in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats), strict=False)
        every.append(
            tuple(
                sorted((min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None)
            )
        )
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return every[: math.ceil(math.log2(nodes)) + 1]


def measure(team: Team, seconds: float, secret: str | None = None) -> list[Stream | Unmeasured]:
    """The transfers that this node received; called by every node's leader. Raises AbsentError.

    ``secret``: of the run, if its nodes have one.
    """
    if team.nodes == 1:
        return [Unmeasured(link="streams", why="there is one node")]
    wanted, left = plan_slots(team.nodes, seconds)
    found: list[Stream | Unmeasured] = list(left) if team.node == 0 else []
    broken: dict[tuple[int, int], str] = {}
    for number, slot in enumerate(wanted):
        for direction in slot:
            ends = (direction.source, direction.target)
            name = f"stream/{number}/{direction.target}"
            if ends in broken:
                if team.node == direction.target:
                    found.append(Unmeasured(link=direction.link, why=broken[ends]))
            elif team.node == direction.target:
                found.append(_time_receiving(team, direction, name, seconds / len(wanted), secret))
            elif team.node == direction.source:
                # When the other end cannot be reached, it is the other end that reports it.
                text = team.wait_for(f"{name}/place", 2 * _PATIENCE)
                with contextlib.suppress(OSError):
                    if text:
                        inlet = _parse_inlet(text, team.addresses[direction.target])
                        send(inlet, direction.flows, seconds / len(wanted), secret)
        team.meet(f"stream/{number}", seconds + 2 * _PATIENCE, size=team.nodes)
        for direction in slot:
            ends, failed = (
                (direction.source, direction.target),
                f"stream/{number}/{direction.target}/failed",
            )
            if ends not in broken and (why := team.wait_for(failed, _PATIENCE)):
                broken[ends] = why
    return found


def _time_receiving(
    team: Team, direction: Direction, name: str, seconds: float, secret: str | None
) -> Stream | Unmeasured:
    """One transfer, at its target; the source and the others read in the store whether it failed."""
    result: Stream | Unmeasured
    why = ""

    def publish(inlet: Inlet) -> None:
        team.publish(f"{name}/place", f"{inlet.port} {inlet.word}")

    try:
        timing = equal_parts(
            receive(team.addresses[team.node], direction.flows, seconds, publish, secret), _PARTS
        )
        if timing is None:
            raise OSError("too little arrived to be timed")
        result = Stream(
            source=direction.source,
            target=direction.target,
            flows=direction.flows,
            timings=(timing,),
        )
    except OSError as error:
        team.publish(f"{name}/place", "")  # the source must not wait for a listener that never was
        why = f"nothing came from node {direction.source} over TCP ({error}); see that its firewall lets it pass"
        result = Unmeasured(link=direction.link, why=why)
    team.publish(f"{name}/failed", why)
    return result


def _parse_inlet(text: str, address: str) -> Inlet:
    """At the other node and nowhere else, whatever is in the store; raises OSError for anything malformed."""
    port, _, word = text.partition(" ")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16 or len(word) != _WORD:
        raise OSError("the other node published what this version does not know")
    return Inlet(address, int(port), word)


@dataclass(frozen=True)
class Inlet:
    """Where one transfer is taken in, and the word that was drawn for it."""

    address: str
    port: int
    word: str

    def key(self, secret: str | None) -> bytes:
        """What both ends prove to know: the run's secret and the word; without a secret the word alone, which is in
        torch's store.
        """
        return signature((secret or "").encode(), self.word.encode())


def send(place: Inlet, flows: int, seconds: float, secret: str | None = None) -> None:
    """Pour bytes into ``flows`` connections until the other end closes them; raises OSError."""

    def pour(connection: socket.socket) -> None:
        chunk = bytes(1 << 18)
        connection.settimeout(_SILENCE)
        end = time.monotonic() + seconds + _PATIENCE
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                connection.send(chunk)

    where = (place.address, place.port)
    with contextlib.ExitStack() as opened:
        connections = [
            opened.enter_context(connect(where, place.key(secret), _PURPOSE, seconds=_PATIENCE)[0])
            for _ in range(flows)
        ]
        _run_in_threads(pour, connections, seconds + 2 * _PATIENCE)


def _run_in_threads(
    act: Callable[[socket.socket], None], connections: Sequence[socket.socket], patience: float
) -> None:
    threads = [
        threading.Thread(target=act, args=(connection,), daemon=True) for connection in connections
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)


def _mark(marks: list[Mark], now: float, total: int, began: float, seconds: float) -> None:
    """Add a mark while all connections flow; of a transfer that is too slow for that, two at least."""
    is_spaced = not marks or now - marks[-1][0] >= _SPACING
    is_in_time = len(marks) < 2 or now < began + seconds
    if now >= began + _SKIPPED * seconds and is_spaced and is_in_time:
        marks.append((now, total))


def receive(
    address: str,
    flows: int,
    seconds: float,
    publish: Callable[[Inlet], None],
    secret: str | None = None,
) -> list[Mark]:
    """Take in ``flows`` connections for ``seconds`` and mark what came after the first part; raises OSError."""
    lock = threading.Lock()
    marks: list[Mark] = []
    total = 0

    def drain(connection: socket.socket) -> None:
        nonlocal total
        buffer = bytearray(1 << 20)
        connection.settimeout(_SILENCE)
        with contextlib.suppress(OSError):
            while (count := connection.recv_into(buffer)) > 0:
                now = time.perf_counter()
                with lock:
                    total += count
                    _mark(marks, now, total, began, seconds)
                if now >= began + seconds:
                    break

    with contextlib.ExitStack() as opened:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = opened.enter_context(socket.socket(family))
        listener.bind((address, 0))
        listener.listen()
        place = Inlet(address, listener.getsockname()[1], secrets.token_hex(_WORD // 2))
        publish(place)
        found = gather_members(
            listener, place.key(secret), _PURPOSE, flows, time.monotonic() + _PATIENCE
        )
        connections = [opened.enter_context(each) for each, _ in found]
        if len(connections) < flows:
            raise TimeoutError("timed out")
        began = time.perf_counter()
        _run_in_threads(drain, connections, seconds + 2 * _SILENCE)
    if not marks:
        raise OSError(f"no byte within {_SILENCE:.0f} s")
    return marks
