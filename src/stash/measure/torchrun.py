"""torchrun whose store listens on one address: ``python -m stash.measure.torchrun`` with torchrun's own options.

Its store lets anybody in, and listens on all interfaces unless it is handed a socket. So the first node
hands it one: on loopback where all ranks are on this machine (and what they open is to be there too), else on the
address that the other nodes were given. For the static rendezvous: the other one unpickles what is in the store.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from stash.core.membership import LOOPBACK
from stash.measure.linux.interfaces import interface_of, listen_at

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""How the libraries that ranks talk through learn where to listen."""


def main(words: Sequence[str]) -> None:
    """Run torchrun with these options."""
    import torch.distributed
    import torch.distributed.run
    from torch.distributed.elastic.multiprocessing.errors import record

    run: Any = torch.distributed.run  # no part of it is annotated
    store: Any = vars(torch.distributed)["TCPStore"]  # nor exported by name
    args = run.parse_args(list(words))
    if args.nnodes == "1":
        _stay_on_loopback()
    listener = _open_listener(args.master_addr, args.master_port) if args.node_rank == 0 else None
    if listener is not None:
        args.master_port = listener.getsockname()[1]
        hand_over(listener, store)
    record(run.run)(args)


def _stay_on_loopback() -> None:
    """Let the ranks' libraries listen there, unless the user chose something else."""
    loopback = interface_of(LOOPBACK)
    if loopback is not None:
        for name in _INTERFACES:
            os.environ.setdefault(name, loopback)


def _open_listener(host: str, port: int) -> socket.socket | None:
    """Where the store is to listen; None where that is left to torch. A port that is taken ends the process."""
    try:
        return listen_at(host, port)
    except socket.gaierror:
        return None  # torch says what is wrong with that name
    except OSError as error:
        if (
            error.errno == errno.EADDRNOTAVAIL
        ):  # translated on the way, as a cloud's public addresses are
            return None
        sys.exit(f"OSError: {host}:{port}: {error.strerror}")


def hand_over(listener: socket.socket, store: Any) -> None:
    """Let the next server of torch's class ``store`` listen there."""
    plain, handed = store.__init__, [listener]

    def made(self: Any, *arguments: Any, **named: Any) -> None:
        is_master = named.get("is_master", arguments[3] if len(arguments) > 3 else False)
        if not is_master or not handed:
            plain(self, *arguments, **named)
            return
        descriptor = handed.pop().detach()
        try:
            plain(self, *arguments, master_listen_fd=descriptor, **named)
        except NotImplementedError:  # older ones on libuv
            plain(self, *arguments, master_listen_fd=descriptor, **{**named, "use_libuv": False})

    store.__init__ = made


if __name__ == "__main__":
    main(sys.argv[1:])
