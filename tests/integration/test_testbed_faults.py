"""Profiles over emulated hosts of which something is slow. Hosts and links that die are in the fault matrix."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from characterized import needs_testbed
from runs import PATIENCE

import stash
from stash.analysis.step_times import step_matrix
from stash.core.records.profile import Profile
from stash.lab.testbed.bed import Started, Testbed

pytestmark = [pytest.mark.slow, needs_testbed]
LAYER = "- {name: only, bytes: 5MB, forward_seconds: 15ms, backward_seconds: 30ms}\n"


def begin(
    bed: Testbed, folder: Path, budget: float, model: str = "layers:\n" + LAYER, devices: int = 1
) -> list[Started]:
    """``stash profile`` on every host; it never becomes precise enough to end before its budget."""
    (folder / "model.yaml").write_text(model)

    def command(node: int) -> list[str]:
        return [
            sys.executable, "-m", "stash", "profile", "--nnodes", str(bed.nodes), "--node-rank", str(node),
            "--rdzv-endpoint", f"{bed.address(0)}:29577", "--nproc-per-node", str(devices),
            "--budget", str(budget), "--noise", "0.05", "--rungs", "solo,crowd,node,cluster",
            "-o", str(folder / f"node{node}.stash.json"),
            "-m", "stash.lab.testbed.train_emulated", "--model", str(folder / "model.yaml"),
        ]  # fmt: skip

    return bed.run_all(command, env={"NO_COLOR": "1", "COLUMNS": "200", "TMPDIR": str(folder)})


def ended(nodes: list[Started], folder: Path) -> Profile:
    """The profile of node 0, once all went well."""
    assert {node.wait(PATIENCE) for node in nodes} == {0}, "\n".join(node.output for node in nodes)
    return stash.load(folder / "node0.stash.json")


def test_a_link_that_degrades_is_named_instead_of_averaged_away(tmp_path: Path) -> None:
    with Testbed(2, network="1gbit", verify=False) as bed:
        nodes = begin(bed, tmp_path, budget=40)
        deadline = time.monotonic() + PATIENCE
        while nodes[0].output.count("round ") < 4:
            assert nodes[0].poll() is None, nodes[0].output
            assert time.monotonic() < deadline, nodes[0].output
            time.sleep(0.1)
        bed.set_network(1, "100mbit")
        profile = ended(nodes, tmp_path)
    matrix = step_matrix(profile)
    network = matrix.matrix[:, -1] - matrix.matrix[:, -2]
    assert network[-1] > 4 * network[0]  # the truth: the wire became ten times slower, less what overlaps
    warnings = " ".join(stash.attribute(profile).stability.warnings)
    assert re.search(r"The step under cluster.* takes either \d.* or \d.*, and the mean is neither", warnings), (
        warnings
    )


def test_three_hosts_of_two_ranks_each_and_the_slow_rank_is_named(tmp_path: Path) -> None:
    model = "layers:\n" + LAYER + "slow_ranks: {3: 1.6}\n"
    with Testbed(3, 2, network="1gbit", interconnect="2gbit", verify=False) as bed:
        profile = ended(begin(bed, tmp_path, budget=20, model=model, devices=2), tmp_path)
    breakdown = stash.attribute(profile)
    assert (breakdown.world_size, breakdown.nodes) == (6, 3)
    assert {rank.rank: rank.node for rank in profile.ranks} == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    assert {stall.name for stall in breakdown.stalls} >= {"interconnect", "network"}
    assert breakdown.slow_rank.rank == 3
