"""How profiled jobs are started elsewhere: every kind of command, run by a shell with launchers that only tell."""

import os
import shlex
import subprocess

import pytest

from stash.plan.launch import relaunch

RANKS = "--nnodes=2 --nproc-per-node=4 --node-rank=1 --master-addr=10.0.0.1 --master-port=29500"
ACCELERATED = (
    "--multi_gpu --num_machines=2 --num_processes=8 --machine_rank=1 "
    "--main_process_ip=10.0.0.1 --main_process_port=29500"
)


def relaunched(line, folder):
    """The words that a launcher gets of ``line``."""
    for name in ("torchrun", "accelerate", "python", "deepspeed"):
        (folder / name).write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n')
        (folder / name).chmod(0o755)
    numbers = {
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_NODE_IPS": "10.0.0.1",
    }
    where = {**numbers, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", line], env=where, capture_output=True, text=True, check=True
    )
    return done.stdout.removesuffix("\n").split("\n")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("train.py --epochs 90", f"torchrun {RANKS} -- train.py --epochs 90"),
        ("-m pkg.train --log 1", f"torchrun {RANKS} -m -- pkg.train --log 1"),
        ("python train.py --lr 0.1", f"torchrun {RANKS} -- train.py --lr 0.1"),
        ("/usr/bin/python3.11 -u -m pkg.train", f"torchrun {RANKS} -m -- pkg.train"),
        (
            "torchrun --standalone --nproc_per_node 8 train.py --nnodes 3",
            f"torchrun {RANKS} -- train.py --nnodes 3",
        ),
        (
            "torchrun --nproc-per-node=gpu --max-restarts=2 --tee 3 -- train.py",
            f"torchrun {RANKS} --max-restarts=2 --tee 3 -- train.py",
        ),
        (
            "python -m torch.distributed.run --nnodes 1 -m pkg.train",
            f"torchrun {RANKS} -m -- pkg.train",
        ),
        ("python3 -m torch.distributed.launch --use_env train.py", f"torchrun {RANKS} -- train.py"),
        (
            "accelerate launch --multi_gpu --num_processes 2 --mixed_precision bf16 train.py --x 1",
            f"accelerate launch {ACCELERATED} --mixed_precision bf16 train.py --x 1",
        ),
    ],
)
def test_a_job_keeps_its_own_words_and_gets_new_ranks(typed, expected, tmp_path):
    found = relaunch(shlex.split(typed), nodes=2, devices=4, per_node="4")
    assert relaunched(found.line, tmp_path) == expected.split()
    assert found.notes == ()


@pytest.mark.parametrize(
    "typed", ["deepspeed train.py --deepspeed ds.json", "bash run.sh", "torchrun --help"]
)
def test_another_launcher_is_left_as_typed_and_told_of(typed):
    found = relaunch(shlex.split(typed), nodes=2, devices=4, per_node="4")
    assert found.line == typed
    (note,) = found.notes
    assert note.endswith("how to give it 2 machines is unknown: edit run")
    assert " ".join(typed.split()[:1]) in note


def test_one_device_needs_no_launcher():
    assert relaunch(("train.py", "--epochs", "90"), 1, 1, "4").line == "python train.py --epochs 90"
    assert relaunch(("-m", "pkg.train"), 1, 1, "4").line == "python -m pkg.train"


def test_a_profile_without_a_command_says_so():
    assert relaunch((), 2, 4, "4").notes == (
        "the profile does not hold the job's command: write it into run",
    )


@pytest.mark.parametrize(
    "word", ["a b", "$(touch evil)", "`id`", "; rm -rf x", "it's", "line\nbreak", "", "-- "]
)
def test_no_word_of_an_artefact_is_ever_run(word, tmp_path):
    found = relaunch(("train.py", word, "--end"), 2, 4, "4")
    assert relaunched(found.line, tmp_path)[-len([*word.split("\n"), "--end"]) :] == [
        *word.split("\n"),
        "--end",
    ]
    assert not (tmp_path / "evil").exists()
