"""Where a job runs: flags, torchrun, Slurm, or this machine's devices."""

from __future__ import annotations

import pytest

from stash.base.errors import UserError
from stash.measure.launch.surroundings import cluster


def one_machine(ranks=True, nproc=None, nnodes=None, node_rank=None, endpoint=None, devices=0, cores=2, env=None):
    return cluster(ranks, nproc, nnodes, node_rank, endpoint, devices, cores, env or {})


def test_one_rank_per_gpu_and_two_on_cpus():
    assert one_machine(devices=8, cores=96).nproc == 8
    assert one_machine(cores=96).nproc == 2
    assert one_machine(cores=1).nproc == 1
    assert one_machine(ranks=False, devices=8).nproc == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"nproc": 4, "devices": 2}, "has 2 GPUs"),
        ({"nproc": 3, "cores": 2}, "use 2 or fewer"),
        ({"nproc": 3, "cores": 8}, "does not divide the 8 cores"),
        ({"nproc": 0}, "at least one"),
        ({"nnodes": 2, "node_rank": 2, "endpoint": "a:1"}, "use 0 to 1"),
    ],
)
def test_a_wish_that_does_not_fit_the_machine_is_answered_with_one_that_does(arguments, words):
    with pytest.raises(UserError, match=words):
        one_machine(**arguments)


def test_a_process_that_torchrun_started_is_one_rank_already():
    env = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "LOCAL_WORLD_SIZE": "2"}
    assert one_machine(env=env).inherited


def test_slurm_tells_the_nodes_and_where_they_meet():
    env = {
        "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3", "SLURM_NODEID": "1",
        "SLURM_STEP_NODELIST": "gpu[07-08,11]", "SLURM_JOB_ID": "20001",
    }  # fmt: skip
    found = one_machine(env=env)
    assert (found.nnodes, found.node_rank, found.rdzv_endpoint) == (3, 1, "gpu07:20001")


def test_slurm_with_a_task_per_rank_is_told_to_start_one_per_node():
    env = {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "16"}
    with pytest.raises(UserError, match="--ntasks-per-node=1"):
        one_machine(env=env)
