"""Tensors over a TCP connection: a fixed head, then one buffer that both ends have laid out alike.

A *tray* is that buffer: every tensor has its place in it, so that nothing is serialised and a message is received
where it is read. A worker asks a server for its parameters, or hands in gradients and gets the parameters back.
Knows no Ray, no optimizer. Raises OSError (ConnectionError, TimeoutError) when the other end is gone.
"""

from __future__ import annotations

import array
import contextlib
import enum
import fcntl
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from stash.core.errors import StashError
from stash.spot.train.ledger import DataLease

if TYPE_CHECKING:
    from torch import Tensor

_HEAD = struct.Struct("!4sBqqqq32s")
_MAGIC = b"SPS2"
_UNSIGNED = bytes(32)
PURPOSE = "parameter server"
"""Of a connection, in its handshake."""
_ALIGNED = 16
_CONGESTION = b"cubic"
"""BBR, which some systems prefer, shares a link badly between bursts of a few megabytes (decision 18)."""
STALL_SECONDS = 3.0
"""In which who has its turn moves ``_MIN`` bytes, or loses it: others wait."""
_MIN = 2**17
_NEARLY_NOTHING = 2**17
_LOOK_AGAIN = 0.001
SILENCE_SECONDS = 12
"""After which a peer whose host vanished counts as gone; one that works for longer keeps acknowledging."""


class FrameKind(enum.IntEnum):
    """What a head publishes."""

    PULL = 1
    """From a worker: send the parameters."""
    PUSH = 2
    """From a worker: it has gradients of a lease, and sends them when it may; apply them and send the parameters."""
    PARAMETERS = 3
    APPLIED = 4
    REPEATED = 5
    """The lease had been applied before: only the parameters are new."""
    REFUSED = 6
    """Part of the lease had been applied before, so none of this was."""
    SEND = 7
    """It is the worker's turn: the gradients may come."""


_KINDS = frozenset(FrameKind)


@dataclass(frozen=True)
class FrameHead:
    """What stands before a tray."""

    message: FrameKind
    lease: DataLease
    version: int
    """Of the parameters: those that gradients were taken at, or those that follow. Updates since the beginning."""
    size: int


NO_LEASE = DataLease(0, 0)


class TensorBuffer:
    """One buffer in host memory with a place for every tensor, and a mark for each that was not filled."""

    def __init__(self, tensors: Sequence[Tensor], buffer: Tensor | None = None) -> None:
        """``buffer``: of another tray for such tensors."""
        at = -(-len(tensors) // _ALIGNED) * _ALIGNED
        places = []
        for tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            places.append((at, at + size))
            at += -(-size // _ALIGNED) * _ALIGNED
        self.buffer = torch.zeros(at, dtype=torch.uint8) if buffer is None else buffer
        self._marks = self.buffer[: len(tensors)]
        self.places = tuple(
            self.buffer[start:stop].view(tensor.dtype).view(tensor.shape)
            for tensor, (start, stop) in zip(tensors, places, strict=True)
        )
        self.bytes = self.buffer.numpy().data

    def fill(self, tensors: Iterable[Tensor | None]) -> None:
        """Copy tensors into their places, from whichever device; ``None`` leaves a mark."""
        for number, (place, tensor) in enumerate(zip(self.places, tensors, strict=True)):
            self._marks[number] = tensor is not None
            if tensor is not None:
                place.copy_(tensor)

    def read_tensors(self) -> list[Tensor | None]:
        """The tensors in it, ``None`` where nothing was; they are views of the tray."""
        return [
            place if mark else None
            for place, mark in zip(self.places, self._marks.tolist(), strict=True)
        ]


def send_head(
    link: socket.socket, message: FrameKind, lease: DataLease, version: int, size: int = 0
) -> None:
    """A head; ``size`` bytes are to follow."""
    tag = lease.tag or _UNSIGNED
    link.sendall(_HEAD.pack(_MAGIC, message, lease.start, lease.stop, version, size, tag))


class _Progress:
    """Of one transfer on a link that has a timeout: a byte now and then is none."""

    def __init__(self, link: socket.socket) -> None:
        self._window = link.gettimeout()
        self._since = time.monotonic()
        self._moved = 0

    def record_bytes(self, count: int) -> None:
        """Raises TimeoutError if less than ``_MIN`` bytes moved for as long as the timeout."""
        self._moved += count
        now = time.monotonic()
        if self._window is None or now - self._since <= self._window:
            return
        if self._moved < _MIN:
            raise TimeoutError(
                f"the other end moved {self._moved} bytes in {now - self._since:.0f} s"
            )
        self._since = now
        self._moved = 0


def send_bytes(link: socket.socket, content: memoryview) -> None:
    """Send all of it; raises TimeoutError as ``_Progress`` has it."""
    sent = 0
    progress = _Progress(link)
    while sent < len(content):
        count = link.send(content[sent:])
        sent += count
        if sent < len(content):
            progress.record_bytes(count)


def drain(link: socket.socket) -> None:
    """Wait until nearly all that was sent has arrived: the system's own buffers hold megabytes. Raises TimeoutError
    as ``_Progress`` has it, ConnectionError if the link is closed meanwhile.
    """
    left = _unarrived_bytes(link)
    progress = _Progress(link)
    while left >= _NEARLY_NOTHING:
        time.sleep(_LOOK_AGAIN)
        before = left
        left = _unarrived_bytes(link)
        progress.record_bytes(before - left)


def _unarrived_bytes(link: socket.socket) -> int:
    """Bytes that were sent and have not arrived, 0 where no system tells; raises ConnectionError for a link that this
    end has closed.
    """
    if not sys.platform.startswith("linux"):
        return 0
    count = array.array("i", [0])
    try:
        fcntl.ioctl(link, termios.TIOCOUTQ, count)
    except ValueError as error:  # it has no descriptor any more
        raise ConnectionError("the link was closed") from error
    return count[0]


def receive_head(link: socket.socket) -> FrameHead:
    """The next head, however long it takes to come; raises ConnectionError at the end of the connection, StashError
    for what is no head.
    """
    raw = bytearray(_HEAD.size)
    _receive(link, memoryview(raw))
    magic, message, start, stop, version, size, tag = _HEAD.unpack(raw)
    if magic != _MAGIC or message not in _KINDS:
        raise StashError(
            "what came over a connection between worker and server is not Stash's; are they unlike versions?"
        )
    return FrameHead(FrameKind(message), DataLease(start, stop, tag), version, size)


def receive_tray(link: socket.socket, head: FrameHead, tray: TensorBuffer) -> None:
    """What follows a head, into ``tray``; raises StashError if it does not fit, as of another model."""
    if head.size != len(tray.bytes):
        raise StashError(
            f"a worker and a server lay out {head.size} and {len(tray.bytes)} bytes: they do not train the same model"
        )
    _receive(link, tray.bytes)


def _receive(link: socket.socket, into: memoryview) -> None:
    got = 0
    progress = _Progress(link)
    while got < len(into):
        count = link.recv_into(into[got:])
        if count == 0:
            raise ConnectionError("the other end closed the connection")
        got += count
        if got < len(into):
            progress.record_bytes(count)


def tune_link(link: socket.socket) -> socket.socket:
    """Small messages leave at once, and a host that vanished is noticed although nothing is being sent."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_CONGESTION"):
        with contextlib.suppress(OSError):
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _CONGESTION)
    for name, value in (
        ("TCP_KEEPIDLE", SILENCE_SECONDS // 3),
        ("TCP_KEEPINTVL", SILENCE_SECONDS // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", SILENCE_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # Linux; elsewhere the system's own patience
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return link
