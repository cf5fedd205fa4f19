"""Studies on a real Slurm of two nodes: end to end, preempted and refused."""

import os
import signal
import subprocess
import sys

import pytest
from characterized import Controller
from profiled import SCRIPTS
from slurm_cluster import obstacle, slurm_cluster

import stash

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(obstacle()), reason=obstacle())]

STUDY = """
workloads: [{{name: net, command: [{script}, {data}]}}]
targets: [{{engine: slurm, devices: 1, {where}}}]
settings: {{budget: "{budget}s", noise: {precision}, probe: {probe}, rungs: [solo, crowd, cluster]}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm_cluster(tmp_path_factory.mktemp("slurm") / "cluster") as found:
        yield found


def begin(
    cluster,
    folder,
    data,
    where,
    budget=2,
    probe="false",
):
    """``stash characterize`` of one cell."""
    script, precision = SCRIPTS / "plain_ddp.py", 50 if budget < 60 else 0.05
    text = STUDY.format(
        script=script, data=data, where=where, budget=budget, precision=precision, probe=probe
    )
    return Controller(folder, text, **cluster.environment)


def logs(folder):
    return "\n".join(path.read_text() for path in folder.glob("grid.study/cells/*/output.log"))


def test_a_cell_on_two_nodes_from_end_to_end(cluster, tmp_path, data):
    # Where no accounts are kept, Slurm takes any quality of service and account, and looks at neither.
    output = begin(
        cluster,
        tmp_path,
        data,
        "partition: two, nodes: 2, options: [--qos=normal, --account=me]",
        probe="4s",
    ).wait_for_end()
    assert "1 of 1 cells are done." in output, logs(tmp_path)
    (path,) = tmp_path.glob("grid.study/cells/*/profile.stash.json")
    profile = stash.load(path)
    assert [(rank.rank, rank.node) for rank in profile.ranks] == [(0, 0), (1, 1)]
    assert {block.rung for block in profile.blocks} == {"solo", "crowd", "cluster"}
    assert stash.attribute(profile).nodes == 2
    # each node was probed, and the first one's links are kept
    assert profile.hosts[0].links is not None
    assert cluster.jobs() == []


def test_a_preempted_cell_is_requeued_and_ends_well(cluster, tmp_path, data):
    process = begin(cluster, tmp_path, data, "partition: two, nodes: 2")
    cluster.until("RUNNING")
    cluster.call(
        "sbatch", "--partition=urgent", "--nodes=2", "--output=/dev/null", "--wrap=sleep 1"
    )
    output = process.wait_for_end()
    assert "1 of 1 cells are done." in output, logs(tmp_path)
    assert output.count("started") == 1  # it is Slurm that starts it again
    assert "DUE TO PREEMPTION" in logs(tmp_path)
    assert cluster.jobs() == []


def test_a_cell_that_fails_on_both_nodes_is_told_once(cluster, tmp_path):
    output = begin(
        cluster, tmp_path, tmp_path / "nowhere", "partition: two, nodes: 2"
    ).wait_for_end(1)
    assert "failed after" in output, logs(tmp_path)
    assert "without a training step" in output
    assert output.count("started") == 1


def test_what_slurm_does_not_take_is_one_sentence(cluster, tmp_path, data):
    output = begin(cluster, tmp_path, data, "partition: nowhere").wait_for_end(1)
    assert output.count("Invalid partition name specified; `sinfo` lists the partitions") == 1, (
        output
    )
    assert "no cell was measured" in output
    assert cluster.jobs() == []


def test_ctrl_c_leaves_no_job(cluster, tmp_path, data):
    process = begin(cluster, tmp_path, data, "partition: two, nodes: 2", budget=600)
    cluster.until("RUNNING")
    process.popen.send_signal(signal.SIGINT)
    process.wait_for_end(130)
    assert cluster.jobs() == []


def test_a_killed_controller_leaves_a_job_that_the_next_one_takes_on(cluster, tmp_path, data):
    process = begin(cluster, tmp_path, data, "partition: two, nodes: 2", budget=4)
    cluster.until("RUNNING")
    process.kill()
    output = begin(cluster, tmp_path, data, "partition: two, nodes: 2", budget=4).wait_for_end()
    assert "taken on" in output
    assert output.count(": started") == 0
    assert "1 of 1 cells are done." in output


MATRIX = """model,gpus,gpu,placement,steps_per_second
m,1,fast,packed,3
m,1,slow,packed,1
n,1,fast,packed,1.1
n,1,slow,packed,1
"""
LAB = "nodes: [{gpu: fast, gpus: 1, name: n1}, {gpu: slow, gpus: 1, name: n2}]\n"


def test_advice_requeues_a_job_to_the_type_that_suits_it(cluster, tmp_path):
    """Of three jobs on two features, the shortest on its fastest type runs on the slow one, and is moved."""
    (tmp_path / "matrix.csv").write_text(MATRIX)
    (tmp_path / "lab.yaml").write_text(LAB)
    table = "job,gpus,model,steps\n"
    for name, feature, work in (
        ("one", "slow", "m,900"),
        ("two", "fast", "n,900"),
        ("three", "fast", "n,990"),
    ):
        words = (
            "--parsable",
            f"--job-name={name}",
            f"--constraint={feature}",
            "--requeue",
            "--partition=two",
        )
        number = cluster.call("sbatch", *words, "--output=/dev/null", "--wrap=sleep 300")
        table += f"{number},1,{work}\n"
    (tmp_path / "jobs.csv").write_text(table)
    try:
        cluster.until("one RUNNING")
        cluster.until("two RUNNING")
        words = (
            "advise",
            "jobs.csv",
            "--cluster",
            "lab.yaml",
            "--policy",
            "srtf",
            "--engine",
            "slurm",
            "--apply",
        )
        done = subprocess.run(
            [sys.executable, "-m", "stash", "schedule", *words],
            cwd=tmp_path,
            env={**os.environ, **cluster.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "scontrol requeue" in done.stderr
        features = cluster.call("squeue", "--noheader", "--format=%j %f").splitlines()
        assert "one fast" in features
        assert "two slow" in features
    finally:
        cluster.attempt("scancel", "--user=root")
