"""The launchers of a job's nodes: they agree on which node is which, and notice one that dies. Knows no measurement.

Before torchrun starts, those without ``--node-rank`` meet once (``number_nodes``). All know a secret of the run, and
prove it (``membership``). The node that the meeting point belongs to is node 0, the others are numbered as they come.
torch's own way to number nodes unpickles what anybody puts into its store.

While the job runs they send signs of life (``Peers``): a node without power or link says nothing, no connection is
reset, and a collective waits half an hour for it. Every launcher has a link to that of rank 0, whose address and key
the ranks gave it when they met. A node that never sent a sign is not judged (a firewall between them, an older Stash).
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from stash.core.errors import UserError
from stash.core.membership import (
    HANDSHAKE_SECONDS,
    Door,
    HungUpError,
    RunMember,
    SignedLink,
    StrangerError,
    connect,
    gather_members,
)
from stash.measure.launcher.engines import Cluster, meeting_point
from stash.measure.linux.interfaces import bind_listener, is_here, listen_at
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import Invitation, Neighbours
from stash.measure.protocol.wire import WireError, pack_value, register_record, unpack_value

MIN_SECRET = 8
"""Characters of a secret that cannot be guessed by trying."""
_MEETING_SECONDS = 600.0
"""Seconds for all nodes to come: as long as torchrun waits for them."""
_PAUSE = 0.3
_PURPOSE = "numbering of nodes"


def number_nodes(cluster: Cluster, patience: float = _MEETING_SECONDS) -> Cluster:
    """The cluster with this node's number; waits for the others where they have to agree on theirs.

    Raises UserError for a secret that is none or that the others do not share, and for nodes that do not come.
    """
    if cluster.nnodes == 1 or cluster.node_rank is not None:
        return cluster
    host, port = meeting_point(cluster)
    if cluster.rdzv_id is not None and len(cluster.rdzv_id) < MIN_SECRET:
        raise UserError(
            f"--rdzv-id has {len(cluster.rdzv_id)} characters: anybody could guess it, and pass for one of your "
            f"nodes; give {MIN_SECRET} or more, like {secrets.token_hex(8)}"
        )
    deadline = time.monotonic() + patience
    listener = _open_meeting(host, port)
    if listener is not None:
        secret = cluster.rdzv_id or secrets.token_hex(8)
        if cluster.rdzv_id is None:
            text = f"this is node 0; start the same command on the others, with --rdzv-id {secret}"
            print(text, file=sys.stderr, flush=True)
        others = gather_members(listener, secret.encode(), _PURPOSE, cluster.nnodes - 1, deadline)
        if len(others) < cluster.nnodes - 1:
            for connection, _ in others:
                connection.close()
            raise _not_all(cluster.nnodes, 1 + len(others))
        for number, (connection, member) in enumerate(others, start=1):
            with contextlib.suppress(OSError), connection:
                SignedLink(connection, member).send(str(number).encode())
        return replace(cluster, node_rank=0, rdzv_id=secret)
    if cluster.rdzv_id is None:
        raise UserError(
            f"which of the {cluster.nnodes} nodes is this? Give the --rdzv-id that the first node prints, or any "
            "secret of yours on all of them, or number them with --node-rank"
        )
    return replace(
        cluster, node_rank=_ask_number(host, port, cluster.rdzv_id, cluster.nnodes, deadline)
    )


def _open_meeting(host: str, port: int) -> socket.socket | None:
    """A socket that listens at the meeting point; None where that is another machine's, or another node's of ours."""
    try:
        return listen_at(host, port) or (
            bind_listener(socket.AF_INET, "", port) if is_here(host) else None
        )
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise UserError(
                f"--rdzv-endpoint {host}:{port}: there is no host of that name"
            ) from None
        if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            return None
        raise UserError(
            f"--rdzv-endpoint {host}:{port}: {error.strerror}; choose another port"
        ) from None


def _ask_number(host: str, port: int, secret: str, nodes: int, deadline: float) -> int:
    """The number that node 0 gives us; raises UserError if it never answers, or does not know the secret."""
    hung_up = UserError(
        "node 0 hung up: its --rdzv-id is another one, or all nodes had come; give the same on all nodes"
    )
    stranger = UserError(
        "whoever answers at --rdzv-endpoint does not know the --rdzv-id; is it another program's port?"
    )
    while time.monotonic() < deadline:
        link = None
        try:
            link = SignedLink(*connect((host, port), secret.encode(), _PURPOSE))
            return int(link.receive(max(deadline, time.monotonic() + HANDSHAKE_SECONDS)))
        except HungUpError:
            raise hung_up from None
        except StrangerError:
            raise stranger from None
        except OSError as error:
            if link is not None and isinstance(error, ConnectionError):
                raise hung_up from None
        finally:
            if link is not None:
                link.close()
        time.sleep(_PAUSE)
    raise _not_all(nodes, None)


def _not_all(nodes: int, came: int | None) -> UserError:
    who = "node 0 did not answer" if came is None else f"{came} of {nodes} nodes came"
    return UserError(
        f"the nodes did not find each other ({who}); start the same command on every node, with --rdzv-endpoint "
        "naming an address and port of the first that the others can reach"
    )


LOST_SECONDS = 15.0
"""Silence of a node, and no step of our own ranks, for so long: it is gone. TCP recovers from shorter ones."""
_SIGNS = "signs of life"


@register_record
@dataclass(frozen=True)
class Silence:
    """Nodes that stopped answering: their numbers with their addresses, and since when (Unix time)."""

    nodes: tuple[tuple[int, str], ...]
    since: float


@register_record
@dataclass(frozen=True)
class Word:
    """What launchers tell each other: that they live, that they leave, or who is gone."""

    sender: str
    """Drawn by each launcher: several may run on one node."""
    node: int
    leaves: bool = False
    gone: Silence | None = None


@dataclass(frozen=True)
class _Peer:
    node: int
    address: str
    seen: float


class _Line(NamedTuple):
    """A connection to another launcher of the job."""

    socket: socket.socket
    link: SignedLink
    address: str


class Peers:
    """One launcher's view of the others; ``greet`` every few seconds, ``find_silence`` finds who is gone."""

    def __init__(self, folder: RunFolder, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._own, self._key = secrets.token_hex(8), secrets.token_hex(32)
        self._node = 0
        self._door: Door | None = None
        self._lines: list[_Line] = []
        """Of rank 0's launcher to all others, of another to that one."""
        self._caller: threading.Thread | None = None
        self._peers: dict[str, _Peer] = {}
        """By sender."""
        self._declared: Silence | None = None
        self.left: tuple[int, str] | None = None
        """The node that took leave last, with its address."""

    def open_socket(self) -> None:
        """Listen, on the interface that leads to the other nodes, as soon as the ranks say that there are any."""
        if self._door is not None or (neighbours := Neighbours.load(self._folder)) is None:
            return
        family = socket.AF_INET6 if ":" in neighbours.address else socket.AF_INET
        try:
            listener = bind_listener(family, neighbours.address, 0)
        except OSError:  # the ranks are in another network namespace, and wait in vain
            return
        place = Invitation(neighbours.address, listener.getsockname()[1], self._key)
        self._node = neighbours.node
        self._door = Door(listener, self._key.encode(), _SIGNS, self._add_line)
        place.write(self._folder)

    def _add_line(self, opened: socket.socket, member: RunMember) -> None:
        with contextlib.suppress(OSError):  # it hung up already
            self._lines.append(_Line(opened, SignedLink(opened, member), opened.getpeername()[0]))

    def close(self) -> None:
        """Take leave: a launcher that ended in order is not missed by those that still have something to do."""
        if self._door is not None:
            self._door.close()
            self._send(Word(self._own, self._node, leaves=True))
            for line in self._lines:
                line.link.close()

    def greet(self) -> None:
        """Send a sign of life, and take those that came."""
        self.open_socket()
        meeting = Invitation.load_meeting(self._folder)
        if self._door is None or meeting is None:
            return
        is_calling = self._caller is not None and self._caller.is_alive()
        if not self._lines and not self._leads(meeting) and not is_calling:
            self._caller = threading.Thread(target=self._call, args=(meeting,), daemon=True)
            self._caller.start()
            self._caller.join(_PAUSE)
        self.receive_signs()
        self._send(Word(self._own, self._node))

    def receive_signs(self) -> None:
        """Take what the others have sent."""
        for line in list(self._lines):
            try:
                while select.select([line.socket], [], [], 0)[0]:
                    sent = line.link.receive(time.monotonic() + HANDSHAKE_SECONDS)
                    self._handle_word(unpack_value(sent), line.address)
            except (OSError, WireError):
                self._hang_up(line)

    def _leads(self, meeting: Invitation | None) -> bool:
        """Whether rank 0 is one of our own: then everybody talks to us."""
        return meeting is not None and meeting.key == self._key

    def _call(self, meeting: Invitation) -> None:
        with contextlib.suppress(OSError):
            self._add_line(*connect((meeting.host, meeting.port), meeting.key.encode(), _SIGNS))

    def _send(self, word: Word) -> None:
        for line in list(self._lines):
            try:
                line.link.send(pack_value(word))
            except OSError:  # no route: exactly what the other side is about to notice
                self._hang_up(line)

    def _hang_up(self, line: _Line) -> None:
        line.link.close()
        self._lines.remove(line)

    def _handle_word(self, word: object, address: str) -> None:
        if not isinstance(word, Word):
            raise WireError("no launcher says that")
        if word.leaves:
            self._peers.pop(word.sender, None)
            self.left = (word.node, address)
        else:
            self._peers[word.sender] = _Peer(word.node, address, self._clock())
        self._declared = word.gone or self._declared

    def find_silence(self, last_step: float | None) -> Silence | None:
        """Who is gone: silent for too long while no rank here stepped either, or declared so by rank 0's launcher.

        ``last_step`` is when a rank of this node last ended a step (Unix time).
        """
        if self._declared is not None:
            return self._declared
        now, stepped = self._clock(), last_step or 0.0
        gone = [
            peer for peer in self._peers.values() if now - max(peer.seen, stepped) > LOST_SECONDS
        ]
        if not gone:
            return None
        nodes = sorted({(peer.node, peer.address) for peer in gone})
        return Silence(tuple(nodes), min(peer.seen for peer in gone))

    def tell_peers(self, silence: Silence) -> None:
        """Let those still there know who is gone, before our own ranks end and break their connections."""
        if self._leads(Invitation.load_meeting(self._folder)):
            self._send(Word(self._own, self._node, gone=silence))
