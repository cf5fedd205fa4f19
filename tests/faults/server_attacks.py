"""A stranger who knows what a parameter server understands, and not the secret of its run.

It speaks to a port: the words of this version after a proof that is none, and those of versions that asked for none.
"""

import contextlib
import os
import socket
import struct
import time
from dataclasses import dataclass, field

PULL, PUSH, UNKNOWN = 1, 2, 99
_UNPROVEN, _PROVEN = struct.Struct("!4sBqqqq"), struct.Struct("!4sBqqqq32s")
_HELLO = 16 + 32 + 32
NAN, LARGE = struct.pack("<f", float("nan")), struct.pack("<f", 1e6)


@dataclass
class Loot:
    """What an attack was given."""

    most: int = 0
    """Bytes on one connection."""
    held: list[socket.socket] = field(default_factory=list)

    def close(self):
        for link in self.held:
            link.close()


def connections(place, kind, lease, size):
    """A connection for each way to say it, with what came in answer to its head."""
    numbers = (kind, *lease, 0, size)
    for words in (
        _UNPROVEN.pack(b"SPS1", *numbers),
        os.urandom(_HELLO) + _PROVEN.pack(b"SPS2", *numbers, os.urandom(32)),
    ):
        with contextlib.suppress(OSError):
            link = socket.create_connection(place, timeout=1.0)
            link.sendall(words)
            yield link, received(link, 64)


def received(link, most, patience=0.5):
    """What comes, up to so many bytes."""
    link.settimeout(patience)
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < most and (more := link.recv(min(1 << 16, most - len(found)))):
            found += more
    return found


def _pull(place, size, loot):
    for link, _ in connections(place, PULL, (0, 0), 0):
        loot.most = max(loot.most, len(received(link, size)))
        link.close()


def _pushes(start, stop, content, kind=PUSH):
    def attack(place, size, loot):
        for link, _ in connections(place, kind, (start, stop), size):
            with contextlib.suppress(OSError):
                link.sendall((content * (size // len(content) + 1))[:size])
                loot.most = max(loot.most, len(received(link, size)))
            link.close()

    return attack


def _trickle(place, size, loot):
    """One byte now and then, on as many connections as it takes to have the only turn."""
    if not loot.held:
        loot.held += [link for link, _ in connections(place, PUSH, (1 << 40, (1 << 40) + 8), size)]
    for link in loot.held:
        with contextlib.suppress(OSError):
            link.sendall(b"\x01")


def _idle(place, size, loot):
    while len(loot.held) < 30:
        with contextlib.suppress(OSError):
            loot.held.append(socket.create_connection(place, timeout=1.0))


ATTACKS = {
    "reads the weights": (_pull, 0.5),
    "pushes gradients that are no numbers": (
        _pushes(10**6, 10**6 + 16, b"\x01" * 64 + NAN * 64),
        0.5,
    ),
    "takes all samples to come": (_pushes(1000, 10**15, bytes(64)), 0.5),
    "sends a byte every two seconds": (_trickle, 2.0),
    "keeps 30 connections that say nothing": (_idle, 0.5),
    "says what no version understands": (_pushes(0, 16, b"\xff" * 64, UNKNOWN), 0.5),
    "pushes a negative lease": (_pushes(-16, -1, LARGE * 16), 0.5),
}
"""What is done to a port, and how many seconds lie between two times."""


def attack(name, place, size, going_on, hurry=1.0):
    """As long as ``going_on``; ``hurry`` times as often."""
    strike, pause = ATTACKS[name]
    loot = Loot()
    while going_on():
        with contextlib.suppress(OSError):
            strike(place, size, loot)
        time.sleep(pause / hurry)
    loot.close()
    return loot
