"""The launchers of a job's nodes let each other know that they live, so that a dead node is noticed.

A node without power or link says nothing: no connection is reset, and a collective waits half an hour for it.
Every launcher talks to that of rank 0, by UDP; the ranks told them where when they met. Knows nothing of
what is measured, and judges no node that it never heard of (a firewall between them, an older Stash).
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stash.measure.run.folder import RunFolder
from stash.measure.run.meeting import Invitation, Meeting

LOST_SECONDS = 15.0
"""Silence of a node, and no step of our own ranks, for so long: it is gone. TCP recovers from shorter ones."""
_MOST_BYTES = 4096
_REPEATS = 3
"""A datagram may be lost; what is said only once is sent so often."""

Address = tuple[str, int]


@dataclass(frozen=True)
class Silence:
    """Nodes that stopped answering: their numbers with their addresses, and since when (Unix time)."""

    nodes: tuple[tuple[int, str], ...]
    since: float


@dataclass
class _Peer:
    node: int
    heard: float


class Peers:
    """One launcher's view of the others; ``greet`` every few seconds, ``silence`` tells who is gone."""

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._own_token = secrets.token_hex(8)
        self._meeting: Meeting | None = None
        self._leader: Address | None = None
        self._peers: dict[Address, _Peer] = {}
        self._told: Silence | None = None
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self._socket.setblocking(False)
        Invitation(self._socket.getsockname()[1], self._own_token).write(folder)

    def close(self) -> None:
        """Take leave: a launcher that ended in order is not missed by those that still have something to do."""
        if self._meeting is not None:
            for address in self._listeners(self._meeting) * _REPEATS:
                self._send(address, leaves=True)
        self._socket.close()

    @property
    def _leads(self) -> bool:
        """Whether rank 0 is one of our own: then everybody talks to us."""
        return self._meeting is not None and self._meeting.token == self._own_token

    def greet(self) -> None:
        """Send a sign of life, and take those that came."""
        self._meeting = self._meeting or Meeting.read(self._folder)
        if self._meeting is None:
            return
        self._hear(self._meeting)
        for address in self._listeners(self._meeting):
            self._send(address)

    def _listeners(self, meeting: Meeting) -> list[Address]:
        if self._leads:
            return list(self._peers)
        if self._leader is None:  # once: asking a name server over a dead link would hold us up
            with contextlib.suppress(OSError):
                self._leader = (socket.gethostbyname(meeting.host), meeting.port)
        return [] if self._leader is None else [self._leader]

    def silence(self, last_step: float | None) -> Silence | None:
        """Who is gone: not heard for too long while no rank here stepped either, or declared so by rank 0's launcher.

        ``last_step`` is when a rank of this node last ended a step (Unix time).
        """
        if self._told is not None:
            return self._told
        now, stepped = self._clock(), last_step or 0.0
        gone = {a: p for a, p in self._peers.items() if now - max(p.heard, stepped) > LOST_SECONDS}
        if not gone:
            return None
        nodes = sorted((peer.node, address[0]) for address, peer in gone.items())
        return Silence(tuple(nodes), min(peer.heard for peer in gone.values()))

    def tell(self, silence: Silence) -> None:
        """Let those still there know who is gone, before our own ranks end and break their connections."""
        if not self._leads:
            return
        lost = {host for _, host in silence.nodes}
        for address in self._peers:
            for _ in range(_REPEATS if address[0] not in lost else 0):
                self._send(address, gone={"nodes": silence.nodes, "since": silence.since})

    def _send(self, address: Address, **more: Any) -> None:
        assert self._meeting is not None
        message = {"token": self._meeting.token, "node": self._meeting.node, **more}
        with contextlib.suppress(OSError):  # no route: exactly what the other side is about to notice
            self._socket.sendto(json.dumps(message).encode(), address)

    def _hear(self, meeting: Meeting) -> None:
        while True:
            try:
                data, address = self._socket.recvfrom(_MOST_BYTES)
                message = json.loads(data)
                if message["token"] != meeting.token:
                    continue
                self._peers[address] = _Peer(int(message["node"]), self._clock())
                if message.get("leaves"):
                    del self._peers[address]
                gone = message.get("gone")
                if gone is not None:
                    nodes = tuple((int(node), str(host)) for node, host in gone["nodes"])
                    self._told = Silence(nodes, float(gone["since"]))
            except OSError:
                return  # nothing more has come
            except (ValueError, TypeError, KeyError):
                continue  # not from a launcher of this job
