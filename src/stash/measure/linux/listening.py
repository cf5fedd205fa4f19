"""A socket that listens on the one address that a host's name means, instead of on all of them."""

from __future__ import annotations

import socket

from stash.base.routes import LOOPBACK


def listen(host: str, port: int) -> socket.socket | None:
    """A socket that listens where ``host`` is, on any port if that is 0; None if no single address is meant.

    A name may mean 127.0.1.1 on the machine itself (Debian), or an address of each family: nobody knows by which of
    them the others come. Raises OSError for an address of somebody else (EADDRNOTAVAIL), or a port that is taken.
    """
    found = {(family, place[0]) for family, _, _, _, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    if len(found) > 1:
        return None
    ((family, address),) = found
    if str(address).startswith("127.") and host != LOOPBACK:
        return None
    return bound(family, str(address), port)


def bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
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
