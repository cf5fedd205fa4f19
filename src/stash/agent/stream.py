"""What leaves the training process: the leader's trace, a line per fact, and every rank's heartbeat."""

from __future__ import annotations

import json
import os
import struct
import time
from typing import Any

from stash.agent.plan import Plan


class Trace:
    """Append-only JSON lines; each is written whole, so a killed run leaves every finished one readable."""

    def __init__(self, plan: Plan) -> None:
        self._path = plan.trace
        self._descriptor: int | None = None

    def write(self, kind: str, **fields: Any) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(self._descriptor, (json.dumps({"kind": kind, **fields}) + "\n").encode())


class Heart:
    """A small file per rank that tells the launcher how far it got: pid, steps, time of the last one."""

    FORMAT = "qqd"

    def __init__(self, plan: Plan) -> None:
        self._folder = plan.folder
        self._descriptor: int | None = None

    def beat(self, rank: int, steps: int) -> None:
        if self._descriptor is None:
            path = os.path.join(self._folder, f"beat.{rank}.{os.getpid()}")
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(self._descriptor, struct.pack(self.FORMAT, os.getpid(), steps, time.time()), 0)
