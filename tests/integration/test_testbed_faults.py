"""Faults in the middle of a profile over emulated hosts: each ends soon, in one plain sentence, with its rounds kept.

A dead node is silent: no connection is reset, and gloo would wait for half an hour. So nothing here
may rest on an error that the network reports.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from runs import PATIENCE

import stash
from stash.analysis.step_times import step_matrix
from stash.core.records.profile import Profile
from stash.lab.testbed import doctor
from stash.lab.testbed.bed import Started, Testbed
from stash.lab.testbed.topology import MARK

_obstacle = doctor.obstacle() or (None if os.geteuid() == 0 else "the testbed's tests need root")
pytestmark = pytest.mark.skipif(_obstacle is not None, reason=_obstacle or "")

PORT = 29577
SOON = 120.0
"""Seconds from a fault until every survivor has reported it and ended: a third of that without other work, and far
less than the half hour that gloo would wait."""
LAYER = "- {name: only, bytes: 5MB, forward_seconds: 15ms, backward_seconds: 30ms}\n"


@dataclass
class Run:
    """A profile under way on every host of a testbed."""

    bed: Testbed
    folder: Path
    nodes: list[Started]

    def output(self, node: int) -> Path:
        """Where that node was told to put the profile."""
        return self.folder / f"node{node}.stash.json"

    def wait_for_rounds(self, count: int, timeout: float = PATIENCE) -> None:
        """Until node 0 has shown so many finished rounds."""
        deadline = time.monotonic() + timeout
        while self.nodes[0].output.count("round ") < count:
            assert self.nodes[0].poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.1)

    def ends_soon(self, node: int) -> str:
        """Its last line, once it has ended with exit code 1 and nothing of it runs any more."""
        try:
            code = self.nodes[node].wait(SOON)
        except subprocess.TimeoutExpired:
            pytest.fail(f"node {node} still runs {SOON:g} s after the fault\n{self.said()}")
        assert code == 1, self.said()
        assert not self.alive(node)
        return self.nodes[node].output.strip().splitlines()[-1]

    def alive(self, node: int) -> str:
        """Process ids in that host's namespace."""
        name = self.bed.environment(node)[MARK]
        return subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout

    def kept(self, node: int) -> Profile:
        """The profile of a node whose measurement failed: valid, marked as such, with its finished rounds."""
        profile = stash.load(self.output(node))
        assert profile.ended == "failed"
        assert stash.attribute(profile).rounds >= 2
        return profile

    def said(self) -> str:
        """Everything all nodes printed."""
        return "\n".join(f"--- node {number}\n{started.output}" for number, started in enumerate(self.nodes))


def begin(
    bed: Testbed, folder: Path, budget: float = PATIENCE, model: str = "layers:\n" + LAYER, devices: int = 1
) -> Run:
    """``stash profile`` on every host; it never becomes precise enough to end before its budget."""
    (folder / "model.yaml").write_text(model)
    run = Run(bed, folder, [])

    def command(node: int) -> list[str]:
        return [
            sys.executable, "-m", "stash", "profile", "--nnodes", str(bed.nodes), "--node-rank", str(node),
            "--rdzv-endpoint", f"{bed.address(0)}:{PORT}", "--nproc-per-node", str(devices),
            "--budget", str(budget), "--precision", "0.05", "--rungs", "solo,crowd,node,cluster",
            "-o", str(run.output(node)),
            "-m", "stash.lab.testbed.train_emulated", "--model", str(folder / "model.yaml"),
        ]  # fmt: skip

    run.nodes = bed.run_all(command, env={"NO_COLOR": "1", "COLUMNS": "200", "TMPDIR": str(folder)})
    return run


@pytest.mark.slow
def test_when_a_link_dies_both_sides_say_so_and_both_keep_the_finished_rounds(tmp_path: Path) -> None:
    with Testbed(2, network="1gbit", verify=False) as bed:
        run = begin(bed, tmp_path)
        run.wait_for_rounds(2)
        bed.unplug(1)
        said = [run.ends_soon(node) for node in (0, 1)]
    for own, other in ((0, 1), (1, 0)):
        assert f"node {other} ({bed.address(other)}) stopped answering at " in said[own], run.said()
        assert "rounds measured before are kept" in said[own]
        assert any("stopped answering" in note for note in run.kept(own).notes)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 0])
def test_when_a_host_vanishes_the_other_says_which_and_keeps_the_finished_rounds(tmp_path: Path, gone: int) -> None:
    with Testbed(2, network="1gbit", verify=False) as bed:
        run = begin(bed, tmp_path)
        run.wait_for_rounds(3)
        bed.kill(gone)
        said = run.ends_soon(1 - gone)
    assert f"node {gone} ({bed.address(gone)}) stopped answering at " in said, run.said()
    assert "rounds measured before are kept" in said
    run.kept(1 - gone)
    assert not run.output(gone).exists()


@pytest.mark.slow
def test_a_link_that_degrades_is_named_instead_of_averaged_away(tmp_path: Path) -> None:
    with Testbed(2, network="1gbit", verify=False) as bed:
        run = begin(bed, tmp_path, budget=40)
        run.wait_for_rounds(4)
        bed.set_network(1, "100mbit")
        assert [node.wait(PATIENCE) for node in run.nodes] == [0, 0], run.said()
    profile = stash.load(run.output(0))
    matrix = step_matrix(profile)
    network = matrix.matrix[:, -1] - matrix.matrix[:, -2]
    assert network[-1] > 4 * network[0]  # the truth: the wire became ten times slower, less what overlaps
    said = " ".join(stash.attribute(profile).stability.warnings)
    assert re.search(r"The step under cluster.* takes either \d.* or \d.*, and the mean is neither", said), said


@pytest.mark.slow
def test_three_hosts_of_two_ranks_each_and_the_slow_rank_is_named(tmp_path: Path) -> None:
    model = "layers:\n" + LAYER + "slow_ranks: {3: 1.6}\n"
    with Testbed(3, 2, network="1gbit", interconnect="2gbit", verify=False) as bed:
        run = begin(bed, tmp_path, budget=20, model=model, devices=2)
        assert [node.wait(PATIENCE) for node in run.nodes] == [0, 0, 0], run.said()
    profile = stash.load(run.output(0))
    breakdown = stash.attribute(profile)
    assert (breakdown.world_size, breakdown.nodes) == (6, 3)
    assert {rank.rank: rank.node for rank in profile.ranks} == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    assert {stall.name for stall in breakdown.stalls} >= {"interconnect", "network"}
    assert breakdown.slow_rank is not None
    assert breakdown.slow_rank.rank == 3


@pytest.mark.slow
def test_all_survivors_name_the_one_host_that_vanished_and_keep_the_same_rounds(tmp_path: Path) -> None:
    with Testbed(3, network="1gbit", verify=False) as bed:
        run = begin(bed, tmp_path)
        run.wait_for_rounds(3)
        bed.kill(2)
        said = [run.ends_soon(node) for node in (0, 1)]
    for node in (0, 1):
        assert f"node 2 ({bed.address(2)}) stopped answering at " in said[node], run.said()
    leader, other = (stash.attribute(run.kept(node)) for node in (0, 1))
    assert leader.rounds == other.rounds
    assert leader.step_seconds == other.step_seconds
