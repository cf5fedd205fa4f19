"""Where an asynchronous training is rehearsed: its head and Ray on this machine, and nothing left running.

Takes an actor away when that is asked. Who is wanted, and why, it does not know.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from stash.api import Started, find_processes
from stash.core.end_tree import end_at_once
from stash.core.interrupts import postpone_requests
from stash.core.jsonl import append_row
from stash.core.membership import TOKEN
from stash.spot.train.actors import ON_LOOPBACK, QUIET
from stash.spot.train.run_orders import WISHES, TrainingOrders, write_orders

MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""


class TrainingBackend:
    """The head of a training, with all of its actors on this machine."""

    def __init__(self, orders: TrainingOrders, folder: Path) -> None:
        # No process joins without these secrets, and Ray writes none into the home folder. Ray sends its own in the
        # clear, so what servers and workers know each other by is another.
        drawn = {"RAY_AUTH_TOKEN": secrets.token_hex(32), TOKEN: secrets.token_hex(32)}
        self._folder, self._orders = folder, orders
        self._variables = {**QUIET, MARK: str(folder), "RAY_AUTH_MODE": "token", **drawn}
        self._head: Started | None = None

    def start(self) -> None:
        """Start the head, which starts everybody else."""
        write_orders(self._folder, self._orders)
        command = (sys.executable, "-m", "stash.spot.train.head", str(self._folder))
        self._head = Started(command, 0, {**os.environ, **ON_LOOPBACK, **self._variables}, None)

    def vanish(self, name: str) -> None:
        """Take an actor away without a word."""
        append_row(self._folder / WISHES, do="vanish", who=name)

    def running(self) -> bool:
        """Whether the head still runs."""
        return self._head is not None and self._head.poll() is None

    def head_output(self) -> str:
        """What the head printed: nothing, unless something failed."""
        return "" if self._head is None else self._head.output

    def status(self) -> int | None:
        """The head's exit status once it has ended, the signal that killed it as a negative number."""
        return None if self._head is None else self._head.poll()

    def close(self) -> None:
        """End everything; harmless when done already."""
        with postpone_requests():
            end_at_once(lambda: find_processes(MARK, str(self._folder)))
            if self._head is not None:
                self._head.wait()
