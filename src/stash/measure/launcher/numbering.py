"""Which node is which, where nobody said: the launchers meet once, before torchrun starts, and prove who they are.

All know a secret of the run, and prove it (``membership``). The node that the meeting point belongs to is node 0, the
others are numbered as they come. torch's own way to number nodes unpickles what anybody puts into its store.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from stash.core.errors import UserError
from stash.core.membership import HANDSHAKE_SECONDS, HungUpError, RunMember, StrangerError, gathered, join, received
from stash.measure.launcher.engines import Cluster, meeting_point
from stash.measure.linux.interfaces import bound, listen

SHORTEST = 8
"""Characters of a secret that cannot be guessed by trying."""
_PATIENCE = 600.0
"""Seconds for all nodes to come: as long as torchrun waits for them."""
_PAUSE = 0.3
_PURPOSE = "numbering of nodes"
_NUMBER, _TAG = 4, 32

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
        others = gathered(listener, secret.encode(), _PURPOSE, cluster.nnodes - 1, deadline)
        if len(others) < cluster.nnodes - 1:
            for connection, _ in others:
                connection.close()
            raise _not_all(cluster.nnodes, 1 + len(others))
        for number, other in enumerate(others, start=1):
            _tell(*other, number)
        return replace(cluster, node_rank=0, rdzv_id=secret)
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


def _tell(connection: socket.socket, member: RunMember, number: int) -> None:
    """Give a node its number."""
    content = number.to_bytes(_NUMBER, "big")
    with contextlib.suppress(OSError), connection:
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.sendall(content + member.sign(content))


def _asked(host: str, port: int, secret: str, nodes: int, deadline: float) -> int:
    """The number that node 0 gives us; raises UserError if it never answers, or is nobody we know."""
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, port), timeout=HANDSHAKE_SECONDS) as connection,
        ):
            return _number(connection, secret, deadline)
        time.sleep(_PAUSE)
    raise _not_all(nodes, None)


def _number(connection: socket.socket, secret: str, deadline: float) -> int:
    try:
        member = join(connection, secret.encode(), _PURPOSE)
    except HungUpError:
        raise _refused() from None
    except StrangerError:
        raise _stranger() from None
    try:
        answer = received(connection, _NUMBER + _TAG, max(deadline, time.monotonic() + HANDSHAKE_SECONDS))
    except ConnectionError:
        raise _refused() from None
    if not member.signed(answer[:_NUMBER], answer[_NUMBER:]):
        raise _stranger()
    return int.from_bytes(answer[:_NUMBER], "big")


def _refused() -> UserError:
    return UserError(
        "node 0 hung up: its --rdzv-id is another one, or all nodes had come; give the same on all nodes"
    )


def _stranger() -> UserError:
    return UserError("whoever answers at --rdzv-endpoint does not know the --rdzv-id; is it another program's port?")


def _not_all(nodes: int, came: int | None) -> UserError:
    who = "node 0 did not answer" if came is None else f"{came} of {nodes} nodes came"
    return UserError(
        f"the nodes did not find each other ({who}); start the same command on every node, with --rdzv-endpoint "
        "naming an address and port of the first that the others can reach"
    )
