"""Engines: which is in charge, how many ranks it starts, and with which command."""

import sys

import pytest

from stash.core.errors import UserError
from stash.core.parsers import node_names
from stash.measure.launcher.engines import (
    Cluster,
    choose_cluster,
    launch_command,
)
from stash.measure.launcher.job import Job
from stash.measure.ranks import RankOptions

PYTHON = (sys.executable, "-u")
TORCHRUN = (*PYTHON, "-m", "stash.measure.torchrun")
SCRIPT = Job("script", "train.py", ("--lr", "0.1"))
MODULE = Job("module", "my.training")
SLURM = {
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_NODELIST": "gpu[3-4]",
}
A_RANK = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "MASTER_ADDR": "gpu3",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "0",
}


def placed(
    ranks=True,
    devices=4,
    cores=8,
    environment=None,
    **asked,
):
    return choose_cluster(RankOptions(**asked), ranks, devices, cores, environment or {})


def test_what_was_typed_is_one_process_unless_more_are_asked_for():
    assert placed(ranks=False) == Cluster(1, 1, engine="local", all_devices=4)
    assert placed(ranks=False, nproc_per_node=1) == Cluster(1, 1, engine="local")
    assert placed(ranks=False, nproc_per_node=2) == Cluster(2, 1, engine="torchrun")


def test_inside_a_launcher_this_process_is_one_rank_already_unless_other_numbers_are_asked_for():
    inside = placed(environment=A_RANK)
    assert inside == Cluster(4, 1, node_rank=0, engine="inherited")
    assert inside.is_inherited
    assert placed(environment=A_RANK, nproc_per_node=1).engine == "torchrun"


def test_inside_srun_slurm_says_how_many_there_are_and_where_they_meet():
    assert placed(environment=SLURM) == Cluster(4, 2, 1, "gpu3:20077", engine="torchrun")
    assert placed(environment=SLURM, rdzv_endpoint="b:9", node_rank=0).rdzv_endpoint == "b:9"
    assert placed(environment=SLURM, nnodes=1) == Cluster(4, 1, engine="torchrun")
    with pytest.raises(UserError, match="start one per node"):
        placed(environment={**SLURM, "SLURM_STEP_NUM_TASKS": "8"})


def test_what_a_launcher_left_behind_somewhere_else_makes_no_rank_of_this_process():
    assert placed(environment={"SLURM_STEP_ID": "0"}) == Cluster(4, 1, engine="torchrun")
    assert placed(environment={"RANK": "3", "WORLD_SIZE": "8"}) == Cluster(4, 1, engine="torchrun")
    assert placed(environment={**A_RANK, "RANK": "x"}) == Cluster(4, 1, engine="torchrun")


def test_of_one_node_slurm_has_nothing_to_say():
    one = {**SLURM, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1"}
    assert placed(devices=1, environment=one) == Cluster(1, 1, engine="local")
    assert placed(environment=one) == Cluster(4, 1, engine="torchrun")


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [("n[3-5,9],m1", "n3"), ("a,b", "a"), ("solo", "solo"), ("gpu[07-08,11]", "gpu07")],
)
def test_the_first_host_of_slurms_list(nodelist, first):
    assert next(node_names(nodelist)) == first


@pytest.mark.parametrize(
    ("asked", "machine", "words"),
    [
        ({"nproc_per_node": 0}, {}, "at least one process"),
        ({"nproc_per_node": 9}, {}, "has 4 GPUs; use 4 or fewer"),
        ({"nproc_per_node": 9}, {"devices": 0}, "needs a core of its own"),
        ({"nproc_per_node": 3}, {"devices": 0}, "does not divide the 8 cores"),
        ({"nproc_per_node": 3}, {"devices": 0, "cores": 2}, "use 2 or fewer"),
        ({"node_rank": 2, "nnodes": 2}, {}, "not one of the 2 nodes; use 0 to 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(asked, machine, words):
    with pytest.raises(UserError, match=words):
        placed(**machine, **asked)


@pytest.mark.parametrize("cores", [1, 3, 7])
def test_ranks_that_were_not_asked_for_are_as_many_as_cores_can_be_shared_by(cores):
    """A pod of three cores: a plain script was refused for two ranks that nobody had typed."""
    assert placed(ranks=False, devices=0, cores=cores) == Cluster(1, 1, engine="local")
    assert placed(devices=0, cores=cores).nproc == 1


def test_on_a_testbed_ranks_may_share_a_core():
    assert (
        placed(devices=0, cores=2, nproc_per_node=3, environment={"STASH_TESTBED": "1"}).nproc == 3
    )


@pytest.mark.parametrize(
    ("given", "job", "command"),
    [
        (Cluster(engine="local"), SCRIPT, (*PYTHON, "train.py", "--lr", "0.1")),
        (Cluster(engine="inherited"), MODULE, (*PYTHON, "-m", "my.training")),
        (
            Cluster(2),
            SCRIPT,
            (
                *(
                    *TORCHRUN,
                    "--nproc-per-node=2",
                    "--nnodes=1",
                    "--node-rank=0",
                    "--master-addr=127.0.0.1",
                ),
                *("--master-port=0", "--", "train.py", "--lr", "0.1"),
            ),
        ),
        (
            Cluster(1, 2, None, "gpu3:29500"),
            MODULE,
            (
                *(
                    *TORCHRUN,
                    "--nproc-per-node=1",
                    "--nnodes=2",
                    "--node-rank=K",
                ),  # not known before they met
                *("--master-addr=gpu3", "--master-port=29500", "-m", "--", "my.training"),
            ),
        ),
        (
            Cluster(2, 3, 1, "gpu3:29500"),
            MODULE,
            (
                *(*TORCHRUN, "--nproc-per-node=2", "--nnodes=3", "--node-rank=1"),
                *("--master-addr=gpu3", "--master-port=29500", "-m", "--", "my.training"),
            ),
        ),
    ],
)
def test_each_engine_starts_the_job_in_its_way(given, job, command):
    assert launch_command(job, given) == command


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Cluster(2, 2, 0), "needs --rdzv-endpoint HOST:PORT"),
        *(
            (Cluster(2, 2, 0, where), "write it as HOST:PORT")
            for where in ("nowhere", ":1", "a:x", "a:0", "a:65536")
        ),
    ],
)
def test_nodes_that_could_not_meet_are_not_started(given, words):
    with pytest.raises(UserError, match=words):
        launch_command(SCRIPT, given)
