"""Proof that the other end of a TCP connection is of the same run; and this machine's address on the way there.

Both ends know the run's secret (HMAC-SHA256). Each proves it on a number that the other drew, in messages of fixed
sizes and within one deadline; the secret never crosses the network. What follows is not encrypted: a machine in
between can read it, and change what is not sent by a ``SignedLink``.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

TOKEN = "STASH_RUN_TOKEN"
"""Variable that holds a run's secret, on every machine of it."""
HANDSHAKE_SECONDS = 5.0
"""For the whole handshake, however it is cut into packets."""
_NONCE, _NAME, _PROOF = 16, 32, 32
_UNPROVEN = 64
"""Connections whose other end has proven nothing yet; for one more, the oldest is closed."""
_PAUSE = 0.2
_HEAD = struct.Struct("!IQ")
_MAX_BYTES, _PART = 1 << 26, 1 << 20
"""Of a message, and of what is read of it at a time."""


class StrangerError(ConnectionError):
    """The other end does not know the secret."""


class HungUpError(StrangerError):
    """The other end does not accept this one's proof, or takes no member any more."""


def signature(secret: bytes, *parts: bytes) -> bytes:
    """Sign all parts, and where one ends and the next begins."""
    return hmac.digest(
        secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256"
    )


@dataclass(frozen=True)
class RunMember:
    """Who has proven to know the secret, by the name it gave, on one connection."""

    name: str
    _key: bytes
    """Of this connection alone."""

    def sign(self, content: bytes) -> bytes:
        return signature(self._key, content)

    def is_signed(self, content: bytes, tag: bytes) -> bool:
        return hmac.compare_digest(tag, self.sign(content))


def admit(
    link: socket.socket, secret: bytes, purpose: str, seconds: float = HANDSHAKE_SECONDS
) -> RunMember:
    """The listening end: who is there. Raises StrangerError, or OSError (TimeoutError) if it is too slow or gone."""
    deadline = time.monotonic() + seconds
    drawn = secrets.token_bytes(_NONCE)
    link.settimeout(seconds)
    link.sendall(drawn)
    answer = receive_bytes(link, _NONCE + _NAME + _PROOF, deadline)
    reply = answer[:-_PROOF]
    proof = answer[-_PROOF:]
    facts = (purpose.encode(), drawn, reply)
    if not hmac.compare_digest(proof, signature(secret, b"client", *facts)):
        raise StrangerError("it does not know the secret")
    link.sendall(signature(secret, b"server", *facts))
    link.settimeout(None)
    return RunMember(
        reply[_NONCE:].rstrip(b"\0").decode(errors="replace"),
        signature(secret, b"connection", *facts),
    )


def join(
    link: socket.socket,
    secret: bytes,
    purpose: str,
    name: str = "",
    seconds: float = HANDSHAKE_SECONDS,
) -> RunMember:
    """The connecting end. Raises StrangerError if the other end proves nothing, HungUpError on our proof; OSError."""
    deadline = time.monotonic() + seconds
    called = name.encode().ljust(_NAME, b"\0")
    if len(called) != _NAME:
        raise ValueError(f"{name!r} is longer than {_NAME} bytes")
    drawn = receive_bytes(link, _NONCE, deadline)
    greeting = secrets.token_bytes(_NONCE) + called
    facts = (purpose.encode(), drawn, greeting)
    link.sendall(greeting + signature(secret, b"client", *facts))
    try:
        proof = receive_bytes(link, _PROOF, deadline)
    except ConnectionError:
        raise HungUpError(
            "it hung up: its secret is another one, or it takes no members any more"
        ) from None
    if not hmac.compare_digest(proof, signature(secret, b"server", *facts)):
        raise StrangerError("it does not know the secret")
    link.settimeout(None)
    return RunMember(name, signature(secret, b"connection", *facts))


def connect(
    address: tuple[str, int],
    secret: bytes,
    purpose: str,
    name: str = "",
    seconds: float = HANDSHAKE_SECONDS,
) -> tuple[socket.socket, RunMember]:
    """A connection to who listens there, joined; raises as ``join`` does. ``seconds``: to be answered at all."""
    link = socket.create_connection(address, timeout=seconds)
    try:
        return link, join(link, secret, purpose, name)
    except BaseException:
        link.close()
        raise


def receive_bytes(link: socket.socket, size: int, deadline: float | None) -> bytes:
    """So many bytes by then, if ever; raises ConnectionError if the other end hangs up before, TimeoutError."""
    data = bytearray()
    while len(data) < size:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("timed out")
        link.settimeout(left)
        more = link.recv(min(size - len(data), _PART))
        if not more:
            raise ConnectionError("the other end closed the connection")
        data += more
    return bytes(data)


class SignedLink:
    """Whole messages over a member's connection, each signed, and numbered so that none counts twice."""

    def __init__(self, link: socket.socket, member: RunMember) -> None:
        """It has the connection from then on."""
        self._link = link
        self._member = member
        self._sent = self._got = 0
        self._lock = threading.Lock()
        link.settimeout(None)
        link.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(HANDSHAKE_SECONDS), 0)
        )
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, content: bytes) -> None:
        """Raises OSError."""
        with self._lock:
            self._sent += 1
            head = _HEAD.pack(len(content), self._sent)
            self._link.sendall(head + content + self._member.sign(head + content))

    def receive(self, deadline: float | None = None) -> bytes:
        """The next message; raises OSError where none comes by then, if ever, StrangerError for a foreign one."""
        head = receive_bytes(self._link, _HEAD.size, deadline)
        length, number = _HEAD.unpack(head)
        if length > _MAX_BYTES or number != self._got + 1:
            raise StrangerError("it is no message of this connection")
        content = receive_bytes(self._link, length, deadline)
        if not self._member.is_signed(head + content, receive_bytes(self._link, _PROOF, deadline)):
            raise StrangerError("its signature is wrong")
        self._got = number
        return content

    def close(self) -> None:
        """Hang up, also on a thread that receives."""
        hang_up(self._link)
        self._link.close()


class Door:
    """Lets members of a run in, and none else: each connection proves itself in a thread of its own."""

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        purpose: str,
        welcome: Callable[[socket.socket, RunMember], None],
    ) -> None:
        """``welcome`` is called in that thread, and has the connection from then on. The door closes the listener."""
        self._listener = listener
        self._secret = secret
        self._purpose = purpose
        self._welcome = welcome
        self._unproven: dict[socket.socket, None] = {}
        self._lock = threading.Lock()
        self._closed = False
        listener.settimeout(_PAUSE)  # where it cannot be shut down, it is looked after as often
        self._thread = threading.Thread(target=self._accept_links, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no members any more."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()  # else it might accept at whatever has the descriptor next
        self._listener.close()
        with self._lock:
            for link in self._unproven:
                hang_up(link)

    def _accept_links(self) -> None:
        while not self._closed:
            try:
                link, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:  # it hung up meanwhile, or there are too many open files
                time.sleep(_PAUSE)
                continue
            with self._lock:
                if len(self._unproven) == _UNPROVEN:
                    oldest = next(iter(self._unproven))
                    del self._unproven[oldest]
                    hang_up(oldest)
                self._unproven[link] = None
            threading.Thread(target=self._admit, args=(link,), daemon=True).start()

    def _admit(self, link: socket.socket) -> None:
        try:
            member = admit(link, self._secret, self._purpose)
        except OSError:
            link.close()
            return
        finally:
            with self._lock:
                self._unproven.pop(link, None)
        self._welcome(link, member)


def gather_members(
    listener: socket.socket, secret: bytes, purpose: str, count: int, deadline: float
) -> list[tuple[socket.socket, RunMember]]:
    """The first ``count`` members that come, or as many as have come by then. The listener is closed."""
    found: list[tuple[socket.socket, RunMember]] = []
    lock, all_here = threading.Lock(), threading.Event()

    def welcome(link: socket.socket, member: RunMember) -> None:
        with lock:
            if all_here.is_set():
                link.close()
                return
            found.append((link, member))
            if len(found) == count:
                all_here.set()

    door = Door(listener, secret, purpose, welcome)
    try:
        all_here.wait(max(0.0, deadline - time.monotonic()))
    finally:
        door.close()
        with lock:
            all_here.set()
    return found


def hang_up(link: socket.socket) -> None:
    """End a connection that another thread waits for and closes, so that its descriptor is not reused before."""
    with contextlib.suppress(OSError):
        link.shutdown(socket.SHUT_RDWR)


LOOPBACK = "127.0.0.1"
_ANY_PORT = 9


def address_towards(host: str) -> str:
    """This machine's own address on the way to ``host``; raises OSError where there is no way."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[
        0
    ]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)  # of a datagram socket: it only makes the kernel choose a route
        return str(probe.getsockname()[0])
