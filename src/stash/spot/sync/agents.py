"""torchrun agents, one a node of a synchronous job: how they are started, where they meet, and what they print.

Agents meet at a store that none of them keeps, as on an on-demand head: whichever node is revoked, the meeting place
stays. ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE`` is what lets torch 2.13 readmit a node: without it an agent that led an
earlier round keeps that round's address, publishes it in no later one, and a newcomer waits for it until it gives up.
Who goes when, and what to do about it, is not known here; where a node is, its hosts know.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stash.core.errors import StashError
from stash.core.interrupts import postponed
from stash.measure.linux.processes import end_at_once
from stash.spot.emulate.hosts import HEAD, MARK, EmulatedHosts, ThisMachine, last_line, leftovers, started
from stash.spot.sync.checkpoint_request import EVERY, FOLDER
from stash.spot.sync.rendezvous import PORT, READY, meeting_store

SETTINGS = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Variables that torchrun needs on every node; a user's own value wins."""
RENDEZVOUS = "is_host=0,keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=5"
"""A node that is gone is missed after 5 s, not torchrun's 15; a group that is not full waits 5 s for more, not 30."""
RUN_ID = "PET_RDZV_ID"
"""Variable that names the run where the words do not (``torch.distributed.argparse_util``)."""
_SIZE = "GROUP_WORLD_SIZE"
_ERROR = re.compile(
    r"^(?:\[rank\d+\]: )?((?!torch\.distributed\.elastic)[\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE
)


@dataclass(frozen=True)
class SyncOrders:
    """What is started on every node."""

    script: tuple[str, ...]
    """The file, and its arguments."""
    nodes: tuple[str, ...]
    """At first, and at most as many."""
    least: int
    """Nodes that the script can train with."""
    restarts: int
    """That torchrun may spend on each node."""
    checkpoints: Path
    every: float
    """Seconds between checkpoints, where the script does not say."""


class ScriptMeeting(NamedTuple):
    """Where a script was started: in a group of how many nodes, of which run, behind which port."""

    size: int
    run: str
    port: str


def torchrun(orders: SyncOrders, endpoint: str, run_id: str | None, processes: int = 1) -> tuple[str, ...]:
    """The words after ``torchrun``; the run's name may be left to its variable, ``RUN_ID``."""
    named = () if run_id is None else (f"--rdzv-id={run_id}",)
    return (
        f"--nnodes={orders.least}:{len(orders.nodes)}", f"--nproc-per-node={processes}",
        f"--max-restarts={orders.restarts}", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", *named,
        f"--rdzv-conf={RENDEZVOUS}", *orders.script,
    )  # fmt: skip


def meeting(variables: Mapping[str, str]) -> ScriptMeeting | None:
    """Find where a process with these variables meets; ``None`` if torchrun has not started it."""
    size = variables.get(_SIZE, "")
    if not size.isdecimal():
        return None
    return ScriptMeeting(int(size), variables.get("TORCHELASTIC_RUN_ID", ""), variables.get("MASTER_PORT", ""))


def script_failed(printed: str) -> bool:
    """Whether it was the script that failed on a node, not torchrun: at a rendezvous, say."""
    return "ChildFailedError" in printed


def complaint(printed: str) -> str:
    """The last error that a script wrote; empty if it wrote none."""
    return next(reversed(_ERROR.findall(printed)), "")


NODE = "STASH_SPOT_NODE"
"""Variable in the environment of an agent, and of all that it starts: whose it is."""
_DEFAULTS = {"OMP_NUM_THREADS": "1", **SETTINGS}
_GRACE = 5.0
"""Seconds for scripts to end when everything does."""
_START_SECONDS = 120.0
"""For the store to be there."""


@dataclass(frozen=True)
class TrainingGroup:
    """Nodes that train together, and where: another meeting is another start of the script."""

    nodes: frozenset[str]
    meeting: tuple[str, ...]


class TorchrunAgents:
    """Every node a process tree at its place."""

    def __init__(self, orders: SyncOrders, folder: Path, hosts: ThisMachine | EmulatedHosts) -> None:
        self._orders, self._folder, self._hosts = orders, folder, hosts
        own = {FOLDER: str(orders.checkpoints), EVERY: str(orders.every), MARK: str(folder)}
        self._variables = {**own, "PYTHONUNBUFFERED": "1"}
        self._endpoint = ""
        self._store: object = None
        self._run = secrets.token_hex(4)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._read: dict[str, int] = {}

    def start(self) -> None:
        """Open the meeting point; raises StashError."""
        self._hosts.start()
        address = self._hosts.address(HEAD)
        if isinstance(self._hosts, ThisMachine):  # in this process: no rank trains on once it was killed
            self._store = store = meeting_store(address, 0)
            self._endpoint = f"{address}:{store.port}"
            return
        words = (sys.executable, "-m", "stash.spot.sync.rendezvous", address, str(PORT))
        store_process, until = self._hosts.run(HEAD, words, {}), time.monotonic() + _START_SECONDS
        while READY not in store_process.output:
            if store_process.poll() is not None or time.monotonic() > until:
                raise StashError(f"the store did not start on the emulated head: {last_line(store_process.output)}")
            time.sleep(0.1)
        self._endpoint = f"{address}:{PORT}"

    def begin(self) -> None:
        """A new rendezvous: who is launched from now on meets none of the earlier nodes."""
        self._run = secrets.token_hex(4)

    def launch(self, name: str) -> None:
        """Raises StashError if there is no place for one more."""
        agent = (sys.executable, "-m", "torch.distributed.run", f"--local-addr={self._hosts.address(name)}")
        words = torchrun(self._orders, self._endpoint, self._run)
        enter, own = self._hosts.enter(name)
        environment = {**_DEFAULTS, **os.environ, **own, **self._variables, NODE: name}
        with (self._folder / f"{name}.out").open("ab") as output, self._errors(name).open("wb") as errors:
            self._agents[name] = subprocess.Popen(
                (*enter, *agent, *words), env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=errors, start_new_session=True,
            )  # fmt: skip

    def ask(self, name: str) -> None:
        """SIGTERM to the agent, which hands it on: the notice that a node gets before it goes."""
        self._agents[name].terminate()

    def vanish(self, name: str) -> None:
        """Take a machine away, and all that ran there."""
        self._hosts.lose(name)
        self.end(name)

    def end(self, name: str) -> None:
        """SIGKILL to the agent and to all that it started; its machine stays."""
        agent = self._agents.pop(name)
        end_at_once(lambda: [pid for pid, variables in started(self._folder) if variables.get(NODE) == name])
        agent.wait()

    def ended(self) -> dict[str, int]:
        """Exit codes of agents that ended without being taken away."""
        codes = {name: agent.poll() for name, agent in self._agents.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def group(self, present: Collection[str]) -> TrainingGroup | None:
        """The nodes that torchrun has put together, if all of them are still there.

        The environment of what it started on each of them says how many they are, and where they meet.
        """
        seen: dict[ScriptMeeting, set[str]] = {}
        for _, variables in started(self._folder):
            found = meeting(variables)
            if variables.get(NODE) in present and found is not None:
                seen.setdefault(found, set()).add(variables[NODE])
        whole = [TrainingGroup(frozenset(names), m[1:]) for m, names in seen.items() if len(names) == m.size]
        return max(whole, key=lambda each: len(each.nodes), default=None)

    def printed(self) -> list[tuple[str, str]]:
        """Whole lines of standard output since the last call, each with its node."""
        lines = []
        for path in sorted(self._folder.glob("*.out")):
            with path.open("rb") as file:
                file.seek(self._read.get(path.stem, 0))
                raw = file.read()
            raw = raw[: raw.rfind(b"\n") + 1]
            self._read[path.stem] = self._read.get(path.stem, 0) + len(raw)
            lines += [(path.stem, line) for line in raw.decode(errors="replace").splitlines()]
        return lines

    def script_failed(self, name: str) -> bool:
        """Whether it was the script that failed on a node, not torchrun: at a rendezvous, say."""
        return script_failed(self._errors(name).read_text(errors="replace"))

    def complaint(self, name: str) -> str:
        """The last error that the script on a node wrote; empty if it wrote none."""
        return complaint(self._errors(name).read_text(errors="replace"))

    def close(self) -> None:
        """End everything, politely at first; harmless when done already."""
        with postponed():
            try:
                self._end_all()
            finally:
                self._store = None
                self._hosts.close()

    def _end_all(self) -> None:
        for agent in self._agents.values():
            agent.terminate()
        patience = time.monotonic() + _GRACE
        while any(agent.poll() is None for agent in self._agents.values()) and time.monotonic() < patience:
            time.sleep(0.05)
        end_at_once(lambda: leftovers(self._folder))
        for agent in self._agents.values():
            agent.wait()
        self._agents.clear()

    def _errors(self, name: str) -> Path:
        return self._folder / f"{name}.err"
