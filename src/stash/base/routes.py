"""Which of this machine's addresses is on the way to a host. Sends nothing; interfaces are ``measure/linux``'s."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"
_ANY_PORT = 9


def address_towards(host: str) -> str:
    """This machine's own address on the way to ``host``; raises OSError where there is no way."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)  # of a datagram socket: it only makes the kernel choose a route
        return str(probe.getsockname()[0])
