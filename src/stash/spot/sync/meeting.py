"""The store at which torchrun's agents meet, kept by none of them: whoever is revoked, the meeting place stays.

``python -m stash.spot.sync.meeting ADDRESS PORT`` keeps one until it is killed, as an on-demand head would.
"""

from __future__ import annotations

import signal
import socket
import sys

from torch.distributed import TCPStore  # type: ignore[attr-defined]

READY = "the store is there"


def meeting_store(address: str, port: int) -> TCPStore:
    """At one address (port 0: a free one): left to itself it would listen on all of them, and agents unpickle what
    they find there.
    """
    listening = socket.create_server((address, port))
    bound = listening.getsockname()[1]
    return TCPStore(address, bound, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())


if __name__ == "__main__":
    kept = meeting_store(sys.argv[1], int(sys.argv[2]))
    print(READY, flush=True)
    signal.pause()
