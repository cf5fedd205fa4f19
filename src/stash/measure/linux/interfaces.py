"""Which way packets leave this machine, and sockets that listen on one address only.

Gloo takes whatever the machine's name resolves to, often a loopback address that no other node reaches; where the
user chose no interface, the one on the way to where the ranks meet is right.
"""

from __future__ import annotations

import contextlib
import os
import socket

from stash.core.imports import import_borrowed
from stash.core.membership import LOOPBACK, address_towards

CHOSEN = "GLOO_SOCKET_IFNAME"
"""Variable in which a user names the interface that ranks talk over."""


def interface_of(address: str) -> str | None:
    """The interface that has an address, ``None`` if there is none, or none can be asked for."""
    try:
        interfaces = import_borrowed("psutil").net_if_addrs()
    except ImportError:
        return None
    for name, entries in interfaces.items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return str(name)
    return None


def address_of(interface: str) -> str | None:
    """The first IPv4 address of an interface, ``None`` if it has none, or if there is no such interface."""
    try:
        entries = import_borrowed("psutil").net_if_addrs().get(interface, [])
    except ImportError:
        return None
    return next((str(entry.address) for entry in entries if entry.family == socket.AF_INET), None)


def is_loopback(address: str) -> bool:
    """Whether an address means this machine only."""
    return address.startswith("127.") or address == "::1"


def own_address() -> str:
    """This node's address as the job's others see it: where gloo listens too."""
    chosen = address_of(os.environ.get(CHOSEN, ""))
    if chosen is not None:
        return chosen
    with contextlib.suppress(OSError):
        own = address_towards(os.environ.get("MASTER_ADDR", ""))
        if not is_loopback(own):
            return own
    with contextlib.suppress(OSError):
        return socket.gethostbyname(socket.gethostname())
    return LOOPBACK


def interface_towards(host: str) -> str | None:
    """The interface that packets to ``host`` leave by; ``None`` for this machine itself, or if there is no way."""
    try:
        own = address_towards(host)
    except OSError:
        return None
    return None if is_loopback(own) else interface_of(own)


def listen_at(host: str, port: int) -> socket.socket | None:
    """A socket that listens where ``host`` is, on any port if that is 0; None if no single address is meant.

    A name may mean 127.0.1.1 on the machine itself (Debian), or an address of each family: by which of them
    the others come is unknown. Raises OSError for an address of another
    machine (EADDRNOTAVAIL), or a port that is taken.
    """
    found = {
        (family, place[0])
        for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    }
    if len(found) > 1:
        return None
    ((family, address),) = found
    if str(address).startswith("127.") and host != LOOPBACK:
        return None
    return bind_listener(family, str(address), port)


def is_here(host: str) -> bool:
    """Whether one of the addresses of that name is this machine's own; raises OSError where there is no such name."""
    for family, _, _, _, place in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM):
        with contextlib.suppress(OSError), socket.socket(family) as tried:
            tried.bind((str(place[0]), 0))
            return True
    return False


def bind_listener(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    """A socket that listens on an address, the empty one for all; raises OSError."""
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(socket.SOMAXCONN)
    except OSError:
        listener.close()
        raise
    return listener
