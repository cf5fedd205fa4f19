"""Which way packets leave this machine: the network interface on the way to a host.

Gloo takes whatever the machine's name resolves to, often a loopback address that no other node reaches; where
nobody chose an interface, the one on the way to where the ranks meet is right. Sends nothing.
"""

from __future__ import annotations

import socket

from stash.base.borrowed import borrowed
from stash.base.routes import address_towards


def interface_of(address: str) -> str | None:
    """The interface that has an address, ``None`` if there is none, or none can be asked for."""
    try:
        interfaces = borrowed("psutil").net_if_addrs()
    except ImportError:
        return None
    for name, entries in interfaces.items():
        if any(entry.address.partition("%")[0] == address for entry in entries):
            return str(name)
    return None


def address_of(interface: str) -> str | None:
    """The first IPv4 address of an interface, ``None`` if it has none, or if there is no such interface."""
    import psutil

    entries = psutil.net_if_addrs().get(interface, [])
    return next((str(entry.address) for entry in entries if entry.family == socket.AF_INET), None)


def is_loopback(address: str) -> bool:
    """Whether it is heard on this machine only."""
    return address.startswith("127.") or address == "::1"


def interface_towards(host: str) -> str | None:
    """The interface that packets to ``host`` leave by; ``None`` for this machine itself, or if there is no way."""
    try:
        own = address_towards(host)
    except OSError:
        return None
    return None if is_loopback(own) else interface_of(own)
