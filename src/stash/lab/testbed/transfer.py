"""One TCP stream from one network namespace to another, timed at the receiver; a program of its own.

Run as ``python transfer.py '[[SOURCE, TARGET, ADDRESS, SECONDS, BYTES]]'``, fields of a ``LinkStream``; prints a list of
payload rates in bytes per second, 0 where nothing arrived. Knows nothing of what was asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import sys
import threading
import time
from typing import NamedTuple

_CLONE_NEWNET = 0x40000000
_SILENCE = 3.0


class LinkStream(NamedTuple):
    """One stream to time."""

    source: str
    """File of the network namespace that it leaves."""
    target: str
    address: str
    """Of the target."""
    seconds: float
    skip: int
    """Bytes that come before: the bucket's burst."""


def enter(namespace: str) -> None:
    """Sockets made from now on by this thread belong to the network namespace of that file."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    finally:
        os.close(descriptor)


def measure_transfer(stream: LinkStream) -> float:
    """Payload bytes per second over the stream's seconds."""
    enter(stream.target)
    with socket.socket() as listener:
        listener.bind((stream.address, 0))
        listener.listen()
        enter(stream.source)
        with socket.create_connection(listener.getsockname(), timeout=_SILENCE) as sender:
            receiver, _ = listener.accept()
            with receiver:
                receiver.settimeout(_SILENCE)
                sender.settimeout(None)
                pump = threading.Thread(target=_pump, args=(sender,), daemon=True)
                pump.start()
                try:
                    rate = _receive(receiver, stream.seconds, stream.skip)
                except OSError:
                    rate = 0.0
            with contextlib.suppress(OSError):
                sender.shutdown(socket.SHUT_RDWR)
        pump.join(timeout=_SILENCE)
    return rate


def _pump(sender: socket.socket) -> None:
    chunk = bytes(1 << 18)
    try:
        while True:
            sender.send(chunk)
    except OSError:
        return


def _receive(receiver: socket.socket, seconds: float, skip: int) -> float:
    buffer = bytearray(1 << 20)
    got = 0
    while got < skip:
        got += receiver.recv_into(buffer)
    began = time.perf_counter()
    got = 0
    while True:
        got += receiver.recv_into(buffer)
        passed = time.perf_counter() - began
        if passed >= seconds:
            return got / passed


if __name__ == "__main__":
    print(json.dumps([measure_transfer(LinkStream(*each)) for each in json.loads(sys.argv[1])]))
