"""Which node is which, where nobody said: the launchers meet once, before torchrun starts, and prove who they are.

All know a secret of the run, which never crosses the network: each side proves it on a number that the other drew
(HMAC). The node that the meeting point belongs to is node 0, the others are numbered as they come. torch's own way to
number nodes unpickles what anybody puts into its store.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from stash.base.errors import UserError
from stash.measure.launch.engines.base import Cluster, meeting_point
from stash.measure.linux.listening import bound, listen

SHORTEST = 8
"""Characters of a secret that cannot be guessed by trying."""
_PATIENCE = 600.0
"""Seconds for all nodes to come: as long as torchrun waits for them."""
_ANSWER = 5.0
_PAUSE = 0.3
_NONCE, _PROOF = 16, 32
_MOST = 64
"""Connections whose other end has not proven anything yet."""

Say = Callable[[str], None]


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def numbered(cluster: Cluster, say: Say = _on_stderr, patience: float = _PATIENCE) -> Cluster:
    """The cluster with this node's number; waits for the others where they have to agree on theirs.

    Raises UserError for a secret that is none or that the others do not share, and for nodes that do not come.
    """
    if cluster.nnodes == 1 or cluster.node_rank is not None:
        return cluster
    host, port = meeting_point(cluster)
    if cluster.rdzv_id is not None and len(cluster.rdzv_id) < SHORTEST:
        raise UserError(
            f"--rdzv-id has {len(cluster.rdzv_id)} characters: anybody could guess it, and pass for one of your "
            f"nodes; give {SHORTEST} or more, like {secrets.token_hex(8)}"
        )
    deadline = time.monotonic() + patience
    listener = _own(host, port)
    if listener is not None:
        secret = cluster.rdzv_id or secrets.token_hex(8)
        if cluster.rdzv_id is None:
            say(f"this is node 0; start the same command on the others, with --rdzv-id {secret}")
        with listener:
            _RollCall(listener, secret, cluster.nnodes).take(deadline)
        return replace(cluster, node_rank=0)
    if cluster.rdzv_id is None:
        raise UserError(
            f"which of the {cluster.nnodes} nodes is this? Give the --rdzv-id that the first node prints, or any "
            "secret of yours on all of them, or number them with --node-rank"
        )
    return replace(cluster, node_rank=_asked(host, port, cluster.rdzv_id, cluster.nnodes, deadline))


def _own(host: str, port: int) -> socket.socket | None:
    """A socket that listens at the meeting point; None where that is another machine's, or another node's of ours."""
    try:
        return listen(host, port) or bound(socket.AF_INET, "", port)
    except OSError as error:
        if isinstance(error, socket.gaierror):
            raise UserError(f"--rdzv-endpoint {host}:{port}: there is no host of that name") from None
        if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            return None
        raise UserError(f"--rdzv-endpoint {host}:{port}: {error.strerror}; choose another port") from None


def _proof(secret: str, says: bytes, numbers: bytes) -> bytes:
    return hmac.digest(secret.encode(), says + numbers, "sha256")


# Node 0 ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arrived:
    connection: socket.socket
    numbers: bytes
    """Those that both sides drew."""


class _RollCall:
    """Node 0's side: takes whoever proves that it knows the secret, until all are there."""

    def __init__(self, listener: socket.socket, secret: str, nodes: int) -> None:
        self._listener, self._secret, self._wanted = listener, secret, nodes - 1
        self._arrived: list[_Arrived] = []
        self._all_here = threading.Event()
        self._lock, self._room = threading.Lock(), threading.Semaphore(_MOST)

    def take(self, deadline: float) -> None:
        """Number all others; raises UserError if some have not come by then."""
        self._listener.settimeout(_PAUSE)
        while not self._all_here.is_set():
            if time.monotonic() > deadline:
                raise _not_all(self._wanted + 1, 1 + len(self._arrived))
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                if self._room.acquire(blocking=False):
                    threading.Thread(target=self._hear, args=(connection,), daemon=True).start()
                else:
                    connection.close()
        for number, one in enumerate(self._arrived, start=1):
            told = number.to_bytes(4, "big")
            with contextlib.suppress(OSError), one.connection:
                one.connection.sendall(told + _proof(self._secret, b"number" + told, one.numbers))

    def _hear(self, connection: socket.socket) -> None:
        """Let one connection prove itself; whoever does not is hung up on, in silence."""
        try:
            connection.settimeout(_ANSWER)
            drawn = secrets.token_bytes(_NONCE)
            connection.sendall(drawn)
            answer = _received(connection, _NONCE + _PROOF)
            numbers = drawn + answer[:_NONCE]
            if not hmac.compare_digest(answer[_NONCE:], _proof(self._secret, b"node", numbers)):
                raise ConnectionError
        except OSError:
            connection.close()
            return
        finally:
            self._room.release()
        with self._lock:
            if len(self._arrived) < self._wanted:
                self._arrived.append(_Arrived(connection, numbers))
            if len(self._arrived) == self._wanted:
                self._all_here.set()


def _received(connection: socket.socket, size: int) -> bytes:
    """So many bytes; raises ConnectionError if the other end hangs up before."""
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("hung up")
        data += more
    return data


# The others -----------------------------------------------------------------------------------------------


def _asked(host: str, port: int, secret: str, nodes: int, deadline: float) -> int:
    """The number that node 0 gives us; raises UserError if it never answers, or is nobody we know."""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=_ANSWER) as connection:
            return _number(connection, secret, deadline)
        time.sleep(_PAUSE)
    raise _not_all(nodes, None)


def _number(connection: socket.socket, secret: str, deadline: float) -> int:
    own = secrets.token_bytes(_NONCE)
    numbers = _received(connection, _NONCE) + own
    connection.sendall(own + _proof(secret, b"node", numbers))
    connection.settimeout(max(_ANSWER, deadline - time.monotonic()))
    try:
        answer = _received(connection, 4 + _PROOF)
    except ConnectionError:
        raise UserError(
            "node 0 hung up: its --rdzv-id is another one, or all nodes had come; give the same on all nodes"
        ) from None
    told = answer[:4]
    if not hmac.compare_digest(answer[4:], _proof(secret, b"number" + told, numbers)):
        raise UserError(
            "whoever answers at --rdzv-endpoint does not know the --rdzv-id; is it another program's port?"
        )
    return int.from_bytes(told, "big")


def _not_all(nodes: int, came: int | None) -> UserError:
    who = "node 0 did not answer" if came is None else f"{came} of {nodes} nodes came"
    return UserError(
        f"the nodes did not find each other ({who}); start the same command on every node, with --rdzv-endpoint "
        "naming an address and port of the first that the others can reach"
    )
