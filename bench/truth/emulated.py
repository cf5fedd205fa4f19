"""Jobs whose ranks hold a model together, on an emulated cluster: one profile, or the step by their own clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.machine import STASH
from stash.core.artefact import load
from stash.core.records.profile import Profile
from stash.lab.testbed.bed import Testbed

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


@dataclass(frozen=True)
class Cluster:
    """Ranks on nodes with shaped links."""

    nodes: int
    network: str = "20mbit"
    interconnect: str | None = "100mbit"
    """Inside nodes of several ranks; None: as fast as memory."""
    ranks: int = 4

    @property
    def devices(self) -> int:
        return self.ranks // self.nodes

    def place(self, node: int) -> tuple[object, ...]:
        """Of a node's ranks, as launchers are told."""
        return (
            "--nnodes",
            self.nodes,
            "--node-rank",
            node,
            "--nproc-per-node",
            self.devices,
        )

    def made(self) -> Testbed:
        """To be entered; needs root."""
        inside = self.interconnect if self.devices > 1 else None
        return Testbed(self.nodes, self.devices, network=self.network, interconnect=inside)

    def __str__(self) -> str:
        inside = (
            f" of {self.devices} at {self.interconnect or 'memory'}" if self.devices > 1 else ""
        )
        return f"{self.nodes} nodes{inside}, {self.network} between"


def run_on(
    bed: Testbed | None,
    nodes: int,
    command: Callable[[int], Sequence[object]],
    seconds: float,
    **environment: str,
) -> str:
    """What ``command(node)`` prints on so many nodes, or here; in threads of one core.

    Raises RuntimeError with that if any of them fails.
    """
    environment = {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment}
    commands = [[str(word) for word in command(node)] for node in range(nodes)]
    if bed is None:
        own = {**os.environ, **environment}
        done = subprocess.run(
            commands[0], env=own, capture_output=True, text=True, check=False, timeout=seconds
        )
        codes, output = [done.returncode], done.stdout + done.stderr
    else:
        started = [bed.run(words, node, environment) for node, words in enumerate(commands)]
        codes = [node.wait(seconds) for node in started]
        output = "\n".join(node.output for node in started)
    if any(codes):
        raise RuntimeError(f"exit codes {codes}\n{output}")
    return output


def run_profile(
    bed: Testbed, cluster: Cluster, job: Sequence[object], budget: float, folder: Path
) -> Profile:
    """One launch over all nodes. Raises RuntimeError with what was printed."""
    folder.mkdir()

    def command(node: int) -> list[object]:
        meeting = ("--rdzv-endpoint", f"{bed.address(0)}:29570", "--budget", budget)
        output = folder / f"{node}.stash.json"
        return [*STASH, "profile", *cluster.place(node), *meeting, "-o", output, *job]

    run_on(bed, cluster.nodes, command, budget + 240)
    return load(folder / "0.stash.json")


def run_plain(bed: Testbed, cluster: Cluster, job: Sequence[object], steps: int) -> str:
    """What a script prints after so many steps without Stash. Raises RuntimeError with that if it fails."""

    def command(node: int) -> list[object]:
        meeting = ("--master-addr", bed.address(0), "--master-port", 29580)
        return [*TORCHRUN, *cluster.place(node), *meeting, *job, "--steps", steps]

    return run_on(bed, cluster.nodes, command, 600)


def number(output: str, words: str) -> float:
    """That a script printed after these words."""
    return float(output.partition(words)[2].split()[0])
