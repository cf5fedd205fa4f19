"""Other measurements on this machine at the same time: each shows itself to the others, whoever's they are.

The sign is a name in the kernel's table of Unix sockets: it needs no folder that two users could quarrel over, and
goes with its process however that ends. Everybody in one network namespace can read it, so the hosts of a testbed,
which share a machine on purpose, do not see each other; neither do containers with networks of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import socket
from pathlib import Path
from types import TracebackType

_SIGN = re.compile(r" @stash-run\.([0-9a-f]+)\.(\d+)$", re.M)
_SOCKETS = Path("/proc/net/unix")


class NeighbouringRuns:
    """A context in which this process shows that it measures. Launchers with one ``meeting`` (the address where the
    nodes of a run meet) belong together, and do not count as each other's neighbours."""

    def __init__(self, meeting: str | None = None, sockets: Path = _SOCKETS) -> None:
        self._run = hashlib.sha256(meeting.encode()).hexdigest()[:16] if meeting else secrets.token_hex(8)
        self._sockets = sockets
        self._sign = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def __enter__(self) -> NeighbouringRuns:
        with contextlib.suppress(OSError):  # unseen, we see others all the same
            self._sign.bind(f"\0stash-run.{self._run}.{os.getpid()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sign.close()

    def others(self) -> list[int]:
        """The processes that measure for other runs now; none where the kernel does not tell."""
        try:
            signs = _SIGN.findall(self._sockets.read_text(errors="replace"))
        except OSError:
            return []
        return sorted(int(process) for run, process in signs if run != self._run)
