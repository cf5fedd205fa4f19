"""Whatever starts the ranks: Stash itself, other launchers, several nodes, torchrun around Stash, Python."""

import shlex
import sys
from pathlib import Path

import pytest
from profiled import SCRIPTS, profile_of

from stash.analysis.attribution import attribute

BIN = Path(sys.executable).parent


@pytest.mark.slow  # test_engines finds itself inside a launcher, test_framework_loops has ranks of another one
def test_stash_inside_torchrun_profiles_the_ranks_it_is(run_profile, data, tmp_path):
    # GIVEN torchrun around `stash profile`, as a cluster's own scripts would have it
    output = tmp_path / "inside.stash.json"
    torchrun = (BIN / "torchrun", "--standalone", "--nproc-per-node", 2, "--no-python")
    command = (
        BIN / "stash",
        "profile",
        "--budget",
        1,
        "--noise",
        50,
        "-o",
        output,
        "plain_ddp.py",
        data,
    )
    outcome = run_profile(program=(*torchrun, *command), output=output)
    # THEN one profile of both ranks is written
    profile = profile_of(outcome)
    assert profile.world_size == 2
    assert profile.nodes == 1
    assert profile.settings.rungs == ("solo", "crowd", "node", "warm", "cold")


def test_dry_run_prints_a_command_that_does_the_same(typed, data, tmp_path):
    # GIVEN --dry-run
    outcome = typed("--dry-run", "--nproc-per-node", 2, "plain_ddp.py", data, "--batch", 8)
    # THEN the whole command is printed, nothing was started and nothing written
    assert outcome.code == 0, outcome.stderr
    words = shlex.split(outcome.stdout)
    assert words[-4:] == ["plain_ddp.py", str(data), "--batch", "8"]
    assert "stash.measure.torchrun" in words
    assert not (tmp_path / "run.stash.json").exists()


def test_function_profiled_from_python(run_profile, data, tmp_path):
    # GIVEN a program that calls stash.profile(train, …), started in another folder than its own
    output = tmp_path / "function.stash.json"
    program = (sys.executable, SCRIPTS / "from_python.py", data, output)
    profile = profile_of(run_profile(program=program, output=output, folder=tmp_path))
    # THEN it gets a profile of two ranks
    assert profile.world_size == 2
    assert profile.workload.name == "train"
    assert profile.workload.batch == 16


def on_two_nodes(start, ranks, port, folder, *words):
    """A job of so many ranks on each of two nodes, which here are this machine twice; its profile."""
    nodes = [
        start(
            "--nnodes",
            2,
            "--node-rank",
            node,
            "--rdzv-endpoint",
            f"127.0.0.1:{port}",
            "--nproc-per-node",
            ranks,
            *words,
            output=folder / f"node-{node}.stash.json",
            STASH_TESTBED="1",
        )
        for node in range(2)
    ]
    first, second = (node.end() for node in nodes)
    assert second.code == 0, second.stderr
    return profile_of(first)


@pytest.mark.slow
def test_groups_of_the_scripts_own_are_confined_to_a_node(start, data, tmp_path, free_port):
    # GIVEN pairs of ranks inside a node, and groups across two nodes with two ranks on each
    profile = on_two_nodes(
        start, 4, free_port, tmp_path, "--rungs", "crowd,node,cluster", "tensor_parallel.py", data
    )
    # THEN what a group costs inside the node is interconnect, and only the rest is network
    breakdown = attribute(profile)
    stalls = {stall.name: stall.seconds for stall in breakdown.stalls}
    assert stalls["interconnect"] == pytest.approx(0.01 + 0.06, abs=0.04)
    assert stalls["network"] == pytest.approx(0.06 * 2, abs=0.04)
    # AND all bytes are counted, and samples once for each pair, which reads the same
    assert profile.workload.exchanged_bytes == pytest.approx(500_000, rel=0.001)
    assert profile.workload.replicas == 4
    assert breakdown.samples_per_step == pytest.approx(4 * 4)
