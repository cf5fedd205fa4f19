"""Where Stash's options end and the job's words begin; where a job runs; what a job looks like from outside."""

from __future__ import annotations

import pytest

from stash.base.errors import UserError
from stash.cli.arguments import split
from stash.measure.launch import job as jobs
from stash.measure.launch.surroundings import cluster

TAKES = {"--budget": True, "-o": True, "--output": True, "--isolate": False, "--workload": True}


@pytest.mark.parametrize(
    ("line", "own", "kind", "words"),
    [
        ("train.py --lr 0.1", "", "script", "train.py --lr 0.1"),
        ("--budget 5 --isolate train.py -o theirs", "--budget 5 --isolate", "script", "train.py -o theirs"),
        ("--budget=5 train.py", "--budget=5", "script", "train.py"),
        ("-o out.json -m pkg.mod --budget 9", "-o out.json", "module", "pkg.mod --budget 9"),
        ("--isolate -- accelerate launch train.py", "--isolate", "command", "accelerate launch train.py"),
        ("--workload resnet18 -- --image-size 64", "--workload resnet18", "command", "--image-size 64"),
        ("--isolate", "--isolate", "none", ""),
    ],
)
def test_options_before_the_target_are_ours_and_all_after_it_is_the_jobs(line, own, kind, words):
    found = split(line.split(), TAKES)
    assert (list(found.own), found.kind, list(found.words)) == (own.split(), kind, words.split())


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


def write(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_script_is_judged_by_what_it_and_the_modules_beside_it_say(tmp_path):
    alone = write(tmp_path, "alone.py", "import torch\nprint(1)\n")
    ranks = write(tmp_path, "ranks.py", "from helper import setup\nsetup()\n")
    spawns = write(tmp_path, "spawns.py", "import torch.distributed as dist\nmp.spawn(run, nprocs=2)\n")
    write(tmp_path, "helper.py", "import torch.distributed as dist\ndef setup(): dist.init_process_group()\n")
    assert jobs.shape(jobs.script(alone, ())) == "one"
    assert jobs.shape(jobs.script(ranks, ())) == "ranks"
    assert jobs.shape(jobs.script(spawns, ())) == "one"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: jobs.script(str(d / "trian.py"), ()), "train.py"),
        (lambda d: jobs.script(str(d), ()), "is a folder"),
        (lambda d: jobs.script(write(d, "broken.py", "def f(:\n"), ()), "line 1"),
        (lambda d: jobs.script(write(d, "run.sh", "python train.py"), ()), "-- bash"),
        (lambda d: jobs.command(("acelerate", "launch")), "no program 'acelerate'"),
        (lambda d: jobs.command(()), "nothing after"),
        (lambda d: jobs.workload("resnet19", None, None, ()), "resnet18"),
        (lambda d: jobs.workload("resnet18", str(d / "nowhere"), None, ()), "stash dataset make images"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_what_to_type_instead(tmp_path, make, words):
    write(tmp_path, "train.py", "")
    with pytest.raises(UserError, match=words):
        make(tmp_path)
