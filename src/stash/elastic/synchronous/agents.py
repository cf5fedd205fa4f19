"""torchrun agents, one for each node of a synchronous job: started at their places, all meeting at one store.

Starts an agent, asks it to go, takes it away with all that it started, and sees which group trains. Who goes when,
and what to do about it, it does not know; where a node is, its place knows.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from stash.base.interrupts import postponed
from stash.elastic.local.processes import MARK, kill_all, leftovers, started
from stash.elastic.synchronous.places import AgentPlace
from stash.elastic.synchronous.torchrun import (
    SETTINGS,
    ScriptMeeting,
    SyncOrders,
    complaint,
    meeting,
    script_failed,
    torchrun,
)
from stash.elastic.synchronous.wanted import EVERY, FOLDER

NODE = "STASH_SPOT_NODE"
"""Variable in the environment of an agent, and of all that it starts: whose it is."""
_DEFAULTS = {"OMP_NUM_THREADS": "1", **SETTINGS}
_GRACE = 5.0
"""Seconds for scripts to end when everything does."""


@dataclass(frozen=True)
class TrainingGroup:
    """Nodes that train together, and where: another meeting is another start of the script."""

    nodes: frozenset[str]
    meeting: tuple[str, ...]


class TorchrunAgents:
    """Every node a process tree at its place."""

    def __init__(self, orders: SyncOrders, folder: Path, place: AgentPlace) -> None:
        self._orders, self._folder, self._place = orders, folder, place
        told = {FOLDER: str(orders.checkpoints), EVERY: str(orders.every), MARK: str(folder)}
        self._told = {**told, "PYTHONUNBUFFERED": "1"}
        self._endpoint = ""
        self._run = secrets.token_hex(4)
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._read: dict[str, int] = {}

    def start(self) -> None:
        """Where they meet is there from now on; raises StashError."""
        self._endpoint = self._place.start()

    def begin(self) -> None:
        """A new rendezvous: who is launched from now on meets nobody of before."""
        self._run = secrets.token_hex(4)

    def launch(self, name: str) -> None:
        """Raises StashError if there is no place for one more."""
        seat = self._place.seat(name)
        agent = (sys.executable, "-m", "torch.distributed.run", f"--local-addr={seat.address}")
        words = torchrun(self._orders, self._endpoint, self._run)
        environment = {**_DEFAULTS, **os.environ, **seat.environment, **self._told, NODE: name}
        with self._output(name).open("ab") as output, self._errors(name).open("wb") as errors:
            self._agents[name] = subprocess.Popen(
                (*seat.enter, *agent, *words), env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=errors, start_new_session=True,
            )  # fmt: skip

    def ask(self, name: str) -> None:
        """SIGTERM to the agent, which hands it on: what a node is told before it goes."""
        self._agents[name].terminate()

    def vanish(self, name: str) -> None:
        """Its machine is gone, and all that ran there."""
        self._place.lose(name)
        self.end(name)

    def end(self, name: str) -> None:
        """SIGKILL to the agent and to all that it started; its machine stays."""
        agent = self._agents.pop(name)
        kill_all(lambda: [pid for pid, variables in started(self._folder) if variables.get(NODE) == name])
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
                self._place.close()

    def _end_all(self) -> None:
        for agent in self._agents.values():
            agent.terminate()
        patience = time.monotonic() + _GRACE
        while any(agent.poll() is None for agent in self._agents.values()) and time.monotonic() < patience:
            time.sleep(0.05)
        kill_all(lambda: leftovers(self._folder))
        for agent in self._agents.values():
            agent.wait()
        self._agents.clear()

    def _output(self, name: str) -> Path:
        return self._folder / f"{name}.out"

    def _errors(self, name: str) -> Path:
        return self._folder / f"{name}.err"
