"""Where an asynchronous training is rehearsed: Ray and its head on emulated hosts, or on this machine alone.

Starts the head and the machines of a fleet, one more when it is wanted, takes one away when that is asked, and leaves
nothing running. Who is wanted, and why, it does not know.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stash.api import Started, Testbed, find_processes
from stash.core.end_tree import end_at_once
from stash.core.errors import StashError
from stash.core.interrupts import postpone_requests
from stash.core.jsonl import append_row
from stash.core.membership import TOKEN
from stash.spot.emulate.build_rehearsal import EmulatedFleet
from stash.spot.train.actors import ON_LOOPBACK, QUIET, STORE_BYTES
from stash.spot.train.run_orders import RAY_HEAD, WISHES, TrainingOrders, write_orders

HEAD = "head"
"""The name of what no revocation takes."""
MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""
_PORT = 6379
_READY = "Ray runtime started"
_START_SECONDS = 120.0
_TRIES = 3
_BIND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


class TrainingBackend:
    """The head of a training and its machines: on emulated hosts each has a Ray of its own, here all share one."""

    def __init__(
        self,
        orders: TrainingOrders,
        folder: Path,
        fleet: EmulatedFleet | None = None,
        spares: int = 0,
    ) -> None:
        """``fleet``: what to emulate; ``None``: all on this machine. ``spares``: hosts for successors."""
        # No process joins without these secrets, and Ray writes none into the home folder. Ray sends its own in the
        # clear, so what servers and workers know each other by is another.
        drawn = {"RAY_AUTH_TOKEN": secrets.token_hex(32), TOKEN: secrets.token_hex(32)}
        self._folder, self._orders = folder, orders
        self._variables = {**QUIET, MARK: str(folder), "RAY_AUTH_MODE": "token", **drawn}
        self._head: Started | None = None
        self._machines: EmulatedMachines | None = None
        if fleet is not None:
            names = [*orders.servers, *(each.name for each in orders.workers)]
            self._machines = EmulatedMachines(names, spares, fleet, self._variables)
            own = self._machines.address(HEAD)
            self._orders = replace(orders, address=f"{own}:{_PORT}", interface=own)

    def start(self) -> None:
        """The head, and every machine of the orders; raises StashError."""
        write_orders(self._folder, self._orders)
        command = (sys.executable, "-m", "stash.spot.train.head", str(self._folder))
        if self._machines is None:
            self._head = Started(command, 0, {**os.environ, **ON_LOOPBACK, **self._variables}, None)
        else:
            self._machines.start()
            self._head = self._machines.run(HEAD, command)

    def launch(self, name: str) -> None:
        """One more machine, for the actor of that name; on this machine there is room for everybody."""
        if self._machines is not None:
            self._machines.join(name)

    def vanish(self, name: str) -> None:
        """Take a machine away without a word; here its actor is killed."""
        if self._machines is None:
            append_row(self._folder / WISHES, do="vanish", who=name)
        else:
            self._machines.lose(name)

    def running(self) -> bool:
        """Whether the head still runs; raises StashError if some machine cannot be started."""
        if self._machines is not None:
            self._machines.start_again()
        return self._head is not None and self._head.poll() is None

    def head_output(self) -> str:
        """What the head printed: nothing, unless something failed."""
        return "" if self._head is None else self._head.output

    def status(self) -> int | None:
        """The head's exit status once it has ended, the signal that killed it as a negative number."""
        return None if self._head is None else self._head.poll()

    def close(self) -> None:
        """End everything; harmless when done already."""
        if self._machines is not None:
            self._machines.close()
            return
        with postpone_requests():
            end_at_once(lambda: find_processes(MARK, str(self._folder)))
            if self._head is not None:
                self._head.wait()


class EmulatedMachines:
    """A host for the head, each member and some successors, with Ray on it and a link as slow as planned."""

    def __init__(
        self, names: Sequence[str], spares: int, fleet: EmulatedFleet, variables: Mapping[str, str]
    ) -> None:
        self._names, self._fleet, self._variables = names, fleet, variables
        self._hosts = {name: number for number, name in enumerate((HEAD, *names))}
        self._free = list(range(len(self._hosts), len(self._hosts) + spares))
        self._bed = Testbed(len(self._hosts) + spares, verify=False)
        # Ray's sockets lie in it, whose names may not be long; each host sees a folder of its own at one place.
        self._folder = Path(tempfile.mkdtemp(prefix="stash-ray-", dir="/tmp"))
        self._rays: dict[str, tuple[Started, int]] = {}
        """Of machines that are there: their Ray, and the how-manieth attempt it is."""

    def address(self, name: str) -> str:
        """Of a member's host, the same as before if it had one; raises StashError if none is left."""
        return self._bed.address(self._number(name))

    def _number(self, name: str) -> int:
        if name not in self._hosts:
            if not self._free:
                raise StashError(f"there is no emulated host left for {name}")
            self._hosts[name] = self._free.pop(0)
        return self._hosts[name]

    def start(self) -> None:
        """The head's, then all others; raises StashError if the first does not come up."""
        self._bed.start()
        (self._folder / "here").mkdir()
        first = self._ray(
            HEAD, "--head", f"--port={_PORT}", *RAY_HEAD, f"--temp-dir={self._folder / 'here'}"
        )
        until = time.monotonic() + _START_SECONDS
        while _READY not in first.output:
            if first.poll() is not None or time.monotonic() > until:
                raise StashError(
                    f"Ray did not start on the emulated head: {last_line(first.output)}"
                )
            time.sleep(0.1)
        for name in self._names:
            self.join(name)

    def join(self, name: str, tries: int = 1) -> None:
        """One more machine."""
        rate = self._fleet.server_rate if name.startswith("server") else self._fleet.worker_rate
        self._bed.set_network(self._number(name), rate)
        self._rays[name] = self._ray(name, f"--address={self.address(HEAD)}:{_PORT}"), tries

    def lose(self, name: str) -> None:
        """Take the machine away, and whatever runs on it."""
        self._rays.pop(name, None)
        self._bed.kill(self._number(name))

    def start_again(self) -> None:
        """Start Ray where it did not come up; raises StashError if that is of no use."""
        for name, (process, tries) in list(self._rays.items()):
            if process.poll() is not None:
                if tries == _TRIES:
                    raise StashError(
                        f"Ray did not start on the emulated {name}: {last_line(process.output)}"
                    )
                self.join(name, tries + 1)

    def _ray(self, name: str, *words: str) -> Started:
        own = (f"--node-ip-address={self.address(name)}", f"--object-store-memory={STORE_BYTES}")
        start = (
            "start",
            "--block",
            "--disable-usage-stats",
            "--num-cpus=1",
            f"--resources={json.dumps({name: 1})}",
        )
        return self.run(name, (sys.executable, "-m", "ray.scripts.scripts", *start, *own, *words))

    def run(self, name: str, command: Sequence[str]) -> Started:
        """Start a command there, where its host's own folder lies in Ray's place; its output is kept."""
        number = self._number(name)
        own = self._folder / str(number)
        own.mkdir(exist_ok=True)
        bound = (
            "unshare",
            "--mount",
            "sh",
            "-c",
            _BIND,
            "sh",
            str(own),
            str(self._folder / "here"),
        )
        return self._bed.run((*bound, *command), number, self._variables)

    def close(self) -> None:
        """Nothing is left of them."""
        try:
            self._bed.close()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def last_line(text: str) -> str:
    """The last line that a program printed."""
    return next(
        (line.strip() for line in reversed(text.splitlines()) if line.strip()), "it printed nothing"
    )
