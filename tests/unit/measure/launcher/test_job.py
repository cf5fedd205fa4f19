"""What a job looks like from outside, and what cannot be one."""

import shlex
import sys

import pytest

from stash.core.errors import UserError
from stash.measure.launcher import job as jobs


def write(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_whether_a_script_may_train_with_ranks_is_read_in_it_and_the_modules_beside_it(tmp_path):
    alone = write(tmp_path, "alone.py", "import torch\nprint(1)\n")
    ranks = write(
        tmp_path, "ranks.py", "import torch.distributed as dist\ndist.init_process_group()\n"
    )
    spawns = write(
        tmp_path, "spawns.py", "import torch.distributed as dist\nmp.spawn(run, nprocs=2)\n"
    )
    assert not jobs.may_train_on_several(jobs.make_script_job(alone, ()))
    assert jobs.may_train_on_several(jobs.make_script_job(ranks, ()))
    assert not jobs.may_train_on_several(jobs.make_script_job(spawns, ()))
    assert not jobs.may_train_on_several(jobs.Job("module", "no.such.module"))


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("python train.py --lr 1", "train.py"),
        ("python -u sub/train.py", "train.py"),
        ("torchrun --nproc-per-node 2 train.py", "train.py"),
        ("accelerate launch --config_file c.yaml train.py", "train.py"),
        ("bash run.sh", "run.sh"),
        ("mpirun -n 2 python3.11 train.py", "train.py"),
        ("srun -m block python train.py", "train.py"),
        ("python -m pkg.mod --lr 1", "pkg.mod"),
        ("torchrun --nproc-per-node 2 -m pkg.mod", "pkg.mod"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train.py"),
        ("/opt/bin/launcher --config big.yaml", "launcher"),
    ],
)
def test_a_command_is_called_after_what_it_starts(command, title):
    program, *words = command.split()
    assert jobs.Job("command", program, tuple(words)).title == title


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: jobs.make_script_job(str(d / "trian.py"), ()), "train.py"),
        (lambda d: jobs.make_script_job(str(d), ()), "is a folder"),
        (lambda d: jobs.make_script_job(write(d, "broken.py", "def f(:\n"), ()), "line 1"),
        (lambda d: jobs.make_script_job(write(d, "run.sh", "python train.py"), ()), "-- bash"),
        (lambda d: jobs.make_command_job(("acelerate", "launch")), "no program 'acelerate'"),
        (lambda d: jobs.make_command_job(()), "nothing after"),
        (lambda d: jobs.make_workload_job("resnet19", None, None, ()), "resnet18"),
        (
            lambda d: jobs.make_workload_job("resnet18", str(d / "nowhere"), None, ()),
            "stash lab dataset make images",
        ),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_what_to_type_instead(tmp_path, make, words):
    write(tmp_path, "train.py", "")
    with pytest.raises(UserError, match=words):
        make(tmp_path)


SOURCES = {
    "latin-1": "# -*- coding: latin-1 -*-\nname = 'café'\n".encode("latin-1"),
    "utf-8 with a mark": b"\xef\xbb\xbfname = 1\n",
    "utf-8 in any locale": "name = 'é'\n".encode(),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_script_may_have_any_encoding_that_python_reads(tmp_path, source):
    (tmp_path / "train.py").write_bytes(source)
    assert jobs.make_script_job(str(tmp_path / "train.py"), ()).kind == "script"


@pytest.mark.parametrize("source", [b"name = '\xe9'\n", b"# coding: klingon\n", b"x\0"])
def test_one_that_python_cannot_read_is_refused_with_its_name(tmp_path, source):
    (tmp_path / "train.py").write_bytes(source)
    with pytest.raises(
        UserError, match=r"train\.py(, line \d+)?: .*python cannot run it|cannot read .*train\.py"
    ):
        jobs.make_script_job(str(tmp_path / "train.py"), ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import torch\n", r"stash profile \S+/train\.py"),
        ("#!/nowhere/python\n", "/nowhere/python, .* is not there"),
    ],
)
def test_a_program_that_does_not_say_what_runs_it_is_refused(tmp_path, text, words):
    program = tmp_path / "train.py"
    program.write_text(text)
    program.chmod(0o755)
    with pytest.raises(UserError, match=words):
        jobs.make_command_job((str(program),))
    program.write_text(f"#!{sys.executable}\n")
    assert jobs.make_command_job((str(program),)).kind == "command"


def test_a_notebook_is_no_script_though_python_can_parse_it(tmp_path):
    notebook = write(tmp_path, "train.ipynb", '{"cells": [], "nbformat": 4}')
    with pytest.raises(
        UserError, match=r"train\.ipynb is a notebook; `jupyter nbconvert --to script \S+` makes a"
    ):
        jobs.make_script_job(notebook, ())


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("python -I train.py", "python -I"),
        ("env A=1 python3.11 -u -ES train.py", "python3.11 -ES"),
        ("/opt/bin/python -S -E -m train", "python -ES"),
        ("bash -c 'python -I train.py; true'", "python -I"),
        ("python -u train.py -I", None),
        ("python -c IES", None),
        ("python -X dev train.py", None),
        ("accelerate launch train.py -I", None),
    ],
)
def test_options_of_python_that_keep_the_agent_out_are_seen(command, found):
    assert jobs.python_options(shlex.split(command)) == found
