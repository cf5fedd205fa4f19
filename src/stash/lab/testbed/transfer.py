"""One TCP stream from one network namespace to another, timed at the receiver; a program of its own.

Run as ``python transfer.py '[{"source": NS, "target": NS, "address": A, "seconds": S, "skip": BYTES}]'``;
prints a list of payload rates in bytes per second, 0 where nothing arrived. Knows nothing of what was asked.
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
from typing import Any

_CLONE_NEWNET = 0x40000000
_SILENCE = 3.0


def enter(namespace: str) -> None:
    """Sockets made from now on by this thread belong to the network namespace of that file."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(namespace, os.O_RDONLY)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    finally:
        os.close(descriptor)


def measure_transfer(source: str, target: str, address: str, seconds: float, skip: int) -> float:
    """Payload bytes per second over ``seconds`` of a stream, after its first ``skip`` bytes (the bucket's burst)."""
    enter(target)
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        enter(source)
        with socket.create_connection(listener.getsockname(), timeout=_SILENCE) as sender:
            receiver, _ = listener.accept()
            with receiver:
                receiver.settimeout(_SILENCE)
                sender.settimeout(None)
                pump = threading.Thread(target=_pump, args=(sender,), daemon=True)
                pump.start()
                try:
                    rate = _receive(receiver, seconds, skip)
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


def main(wanted: list[dict[str, Any]]) -> None:
    """Measure each of ``wanted`` in turn and print the rates."""
    print(json.dumps([measure_transfer(**one) for one in wanted]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
