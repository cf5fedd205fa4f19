"""Where a training can be played: hosts of an emulated cluster, or this machine; and the processes it started."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from stash.core.errors import StashError
from stash.core.interrupts import postponed
from stash.core.membership import TOKEN
from stash.lab.testbed.bed import Started, Testbed
from stash.spot.emulate.build_rehearsal import EmulatedFleet
from stash.spot.train.actors import ON_LOOPBACK, QUIET, STORE_BYTES
from stash.spot.train.run_orders import RAY_HEAD, WISHES, Tape, TrainingOrders, write_orders

# Processes -------------------------------------------------------------------------------------------------
# Processes that a run on this machine started, told by a variable in their environment, wherever they went since.

MARK = "STASH_SPOT_RUN"
"""Variable in the environment of everything that a run starts: its folder."""


def started(folder: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Process and environment of everything that the run of that folder started, but this process."""
    mark = f"{MARK}={folder}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            entries = path.read_bytes().split(b"\0")
            if mark in entries and int(path.parts[2]) != os.getpid():
                pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
                yield int(path.parts[2]), {name: value for name, _, value in pairs}


def leftovers(folder: Path) -> set[int]:
    """All of them."""
    return {pid for pid, _ in started(folder)}


def kill_all(found: Callable[[], Collection[int]]) -> None:
    """SIGKILL to what is found, until nothing is: one may be starting another."""
    for _ in range(20):
        left = found()
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


# Grounds ---------------------------------------------------------------------------------------------------
# Where a training can be played: hosts of an emulated cluster, or nothing but this machine.
#
# A ground starts the head and the machines of a fleet, one more when it is wanted, takes one away when that is
# asked, and leaves nothing running. Who is wanted, and why, it does not know.

_PORT = 6379
_READY = "Ray runtime started"
_START_SECONDS = 120.0
_TRIES = 3
_BIND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


class TrainingGround(Protocol):
    """What a rehearsal asks of where it is played."""

    def start(self) -> None:
        """The head, and every machine of the orders."""

    def launch(self, name: str) -> None:
        """One more machine, for the actor of that name."""

    def vanish(self, name: str) -> None:
        """Take a machine away without a word."""

    def running(self) -> bool:
        """Whether the head still runs."""

    def printed(self) -> str:
        """What the head printed: nothing, unless something failed."""

    def status(self) -> int | None:
        """The head's exit status once it has ended, the signal that killed it as a negative number."""

    def close(self) -> None:
        """End everything; harmless when done already."""


class LocalGround:
    """This machine alone: actors are processes on it, and a revoked one is killed."""

    def __init__(self, orders: TrainingOrders, folder: Path) -> None:
        self._orders, self._folder = orders, folder
        self._wishes = Tape(folder / WISHES)
        self._environment = _environment(folder)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._head: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        write_orders(self._folder, self._orders)
        self._head = subprocess.Popen(
            _head_command(self._folder), env={**os.environ, **ON_LOOPBACK, **self._environment},
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def launch(self, name: str) -> None:
        """There is room for everybody."""

    def vanish(self, name: str) -> None:
        self._wishes.tell(do="vanish", who=name)

    def running(self) -> bool:
        return self._head is not None and self._head.poll() is None

    def printed(self) -> str:
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), size, 0).decode(errors="replace")

    def status(self) -> int | None:
        return None if self._head is None else self._head.poll()

    def close(self) -> None:
        with postponed():
            kill_all(lambda: leftovers(self._folder))
            if self._head is not None:
                self._head.wait()


class TestbedGround:
    """A host of its own for the head, every server and every worker, with links as slow as planned."""

    __test__ = False  # a name that pytest would collect

    def __init__(self, orders: TrainingOrders, folder: Path, fleet: EmulatedFleet, spares: int) -> None:
        """``spares``: hosts for successors."""
        names = [*orders.servers, *(each.name for each in orders.workers)]
        self._nodes: dict[str, int] = {name: number for number, name in enumerate(names, start=1)}
        self._free = list(range(len(names) + 1, len(names) + 1 + spares))
        self._rates: Mapping[bool, float] = {True: fleet.server_rate, False: fleet.worker_rate}
        self._folder, self._environment = folder, _environment(folder)
        self._bed = Testbed(1 + len(names) + spares, verify=False)
        self._orders = replace(orders, address=f"{self._bed.address(0)}:{_PORT}", interface=self._bed.address(0))
        # Ray's sockets lie in it, whose names may not be long; each host sees a folder of its own at one place.
        self._ray = Path(tempfile.mkdtemp(prefix="stash-ray-", dir="/tmp"))
        self._head: Started | None = None
        self._processes: dict[str, tuple[Started, int]] = {}
        """Of machines that are there: their Ray, and the how-manieth attempt it is."""

    def start(self) -> None:
        (self._ray / "here").mkdir()
        write_orders(self._folder, self._orders)
        self._bed.start()
        first = self._ray_node(0, "head", "--head", f"--port={_PORT}", *RAY_HEAD)
        patience = time.monotonic() + _START_SECONDS
        while _READY not in first.output:
            if first.poll() is not None or time.monotonic() > patience:
                raise StashError(f"Ray did not start on the emulated head: {_last_line(first.output)}")
            time.sleep(0.1)
        for name in self._nodes:
            self._join(name)
        self._head = self._bed.run(self._seeing(0, _head_command(self._folder)), 0, env=self._environment)

    def launch(self, name: str) -> None:
        """Raises StashError if there are no more hosts, which the number of ``spares`` should rule out."""
        if not self._free:
            raise StashError(f"there is no emulated host left for {name}")
        self._nodes[name] = self._free.pop(0)
        self._join(name)

    def vanish(self, name: str) -> None:
        self._processes.pop(name, None)
        self._bed.kill(self._nodes[name])

    def running(self) -> bool:
        """Whether the head still runs; a machine whose Ray did not start is started again, and raises StashError
        if that is of no use.
        """
        for name, (process, tries) in list(self._processes.items()):
            if process.poll() is not None:
                if tries == _TRIES:
                    raise StashError(f"Ray did not start on the emulated {name}: {_last_line(process.output)}")
                self._join(name, tries + 1)
        return self._head is not None and self._head.poll() is None

    def printed(self) -> str:
        return "" if self._head is None else self._head.output

    def status(self) -> int | None:
        return None if self._head is None else self._head.poll()

    def close(self) -> None:
        try:
            self._bed.close()
        finally:
            shutil.rmtree(self._ray, ignore_errors=True)

    def _join(self, name: str, tries: int = 1) -> None:
        node = self._nodes[name]
        self._bed.set_network(node, self._rates[name.startswith("server")])
        self._processes[name] = self._ray_node(node, name, f"--address={self._orders.address}"), tries

    def _ray_node(self, node: int, name: str, *words: str) -> Started:
        command = (
            sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", "--num-cpus=1",
            f"--node-ip-address={self._bed.address(node)}", f"--object-store-memory={STORE_BYTES}",
            f"--resources={json.dumps({name: 1})}", *words,
        )  # fmt: skip
        place = (f"--temp-dir={self._ray / 'here'}",) if node == 0 else ()
        return self._bed.run(self._seeing(node, (*command, *place)), node, env=self._environment)

    def _seeing(self, node: int, command: Sequence[str]) -> tuple[str, ...]:
        own = self._ray / str(node)
        own.mkdir(exist_ok=True)
        return ("unshare", "--mount", "sh", "-c", _BIND, "sh", str(own), str(self._ray / "here"), *command)


def _environment(folder: Path) -> dict[str, str]:
    """Of everything in a run: nobody joins it who has not these secrets, and Ray writes none into the home folder.

    Ray sends its own in the clear, so what servers and workers know each other by is another.
    """
    drawn = {"RAY_AUTH_TOKEN": secrets.token_hex(32), TOKEN: secrets.token_hex(32)}
    return {**QUIET, MARK: str(folder), "RAY_AUTH_MODE": "token", **drawn}


def _head_command(folder: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "stash.spot.train.head", str(folder))


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")
