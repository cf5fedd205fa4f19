"""Jobs whose ranks hold a model together, on an emulated cluster: one profile, or the step by their own clock."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stash.core.artefact import load
from stash.core.records.profile import Profile
from stash.lab.testbed.bed import Testbed


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

    def made(self) -> Testbed:
        """To be entered; needs root."""
        inside = self.interconnect if self.devices > 1 else None
        return Testbed(self.nodes, self.devices, network=self.network, interconnect=inside)

    def __str__(self) -> str:
        inside = (
            f" of {self.devices} at {self.interconnect or 'memory'}" if self.devices > 1 else ""
        )
        return f"{self.nodes} nodes{inside}, {self.network} between"


def run_profile(
    bed: Testbed, cluster: Cluster, job: Sequence[object], budget: float, folder: Path
) -> Profile:
    """One launch over all nodes. Raises RuntimeError with what was printed."""
    folder.mkdir()

    def command(node: int) -> list[str]:
        meeting = (
            "--nnodes",
            cluster.nodes,
            "--node-rank",
            node,
            "--nproc-per-node",
            cluster.devices,
        )
        meeting += (
            "--rdzv-endpoint",
            f"{bed.address(0)}:29570",
            "-o",
            folder / f"{node}.stash.json",
        )
        typed = (sys.executable, "-m", "stash", "profile", *meeting, "--budget", budget, *job)
        return [str(word) for word in typed]

    nodes = bed.run_all(command, env={"NO_COLOR": "1", "OMP_NUM_THREADS": "1"})
    codes = [node.wait(budget + 240) for node in nodes]
    if any(codes):
        raise RuntimeError(
            f"{cluster}, {job}: exit codes {codes}\n" + "\n".join(node.output for node in nodes)
        )
    return load(folder / "0.stash.json")


def run_plain(bed: Testbed, cluster: Cluster, job: Sequence[object], steps: int) -> str:
    """What a script prints after so many steps without Stash. Raises RuntimeError with that if it fails."""

    def command(node: int) -> list[str]:
        meeting = (
            "--nnodes",
            cluster.nodes,
            "--node-rank",
            node,
            "--nproc-per-node",
            cluster.devices,
        )
        meeting += ("--master-addr", bed.address(0), "--master-port", 29580)
        typed = (sys.executable, "-m", "torch.distributed.run", *meeting, *job, "--steps", steps)
        return [str(word) for word in typed]

    nodes = [
        bed.run(command(node), node, {"OMP_NUM_THREADS": "1"}) for node in range(cluster.nodes)
    ]
    codes = [node.wait(600) for node in nodes]
    output = "\n".join(node.output for node in nodes)
    if any(codes):
        raise RuntimeError(f"{job}: exit codes {codes}\n{output}")
    return output


def number(output: str, words: str) -> float:
    """That a script printed after these words."""
    return float(output.partition(words)[2].split()[0])
