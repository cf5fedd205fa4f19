"""What goes wrong before rounds are measured: one clear sentence, the right exit code, nothing left running.

What goes wrong later is in the fault matrix (``tests/faults``).
"""

import os
import socket
import textwrap
from pathlib import Path

import pytest

PREAMBLE = """
import torch, torch.distributed as dist, time, os, sys
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step(batch=256):
    optimizer.zero_grad()
    model(torch.rand(batch, 256)).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def script(tmp_path):
    """``script(text)``: a file with that program, after a preamble with a tiny distributed job."""

    def write(text, name="train.py", preamble=PREAMBLE):
        path = tmp_path / name
        path.write_text(preamble + textwrap.dedent(text))
        return path

    return write


def refused(outcome, code, *words):
    """It ended with that code and one sentence holding these words, left no process and shows no trace of Stash."""
    assert outcome.code == code, f"{outcome.code}: {outcome.stderr}"
    assert outcome.error.startswith("error: "), outcome.stderr
    for word in words:
        assert word in outcome.error, outcome.error
    assert "src/stash/cli" not in outcome.stderr, "a traceback of Stash's own"
    assert not outcome.survivors, outcome.survivors


def test_missing_script(run_profile):
    # the one refusal that is checked from outside: its exit code, and no traceback
    refused(run_profile("trian.py"), 2, "there is no script trian.py")


@pytest.mark.parametrize("nproc", [0, -1])
def test_no_ranks_at_all(typed, data, nproc):
    refused(
        typed("--nproc-per-node", nproc, "plain_ddp.py", data), 2, "--nproc-per-node", "1 or more"
    )


@pytest.mark.parametrize("folder", ["/proc", "/sys"])
def test_unwritable_output_folder_is_noticed_before_measuring(typed, data, folder):
    # GIVEN a folder where no user can make files, not even root
    outcome = typed("plain_ddp.py", data, output=Path(folder) / "run.stash.json")
    refused(outcome, 2, folder)


def test_output_is_a_device_and_stays_one(typed, data, tmp_path):
    # GIVEN a pipe instead of a file (for a device it would be the same)
    pipe = tmp_path / "run.stash.json"
    os.mkfifo(pipe)
    outcome = typed("--dry-run", "plain_ddp.py", data, output=pipe)
    refused(outcome, 2, "regular file")
    assert pipe.is_fifo()


@pytest.mark.slow
def test_exception_before_the_first_step_shows_the_scripts_own_traceback(run_profile, script):
    path = script("raise KeyError('learning_rate')")
    outcome = run_profile(path)
    refused(outcome, 1, "train.py", "before its first training step", "KeyError")
    assert outcome.stderr.count("Traceback") == 1
    assert f'File "{path}", line' in outcome.stderr
    assert "raise KeyError('learning_rate')" in outcome.stderr
    assert "torch/distributed" not in outcome.stderr


def test_port_in_use(run_profile, data):
    # GIVEN somebody else on the rendezvous port
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        endpoint = f"127.0.0.1:{other.getsockname()[1]}"
        words = (
            "--nnodes",
            2,
            "--node-rank",
            0,
            "--rdzv-endpoint",
            endpoint,
            "--nproc-per-node",
            1,
        )
        outcome = run_profile(*words, "plain_ddp.py", data)
    refused(outcome, 1, "port", "in use", "--rdzv-endpoint")


@pytest.mark.slow
def test_hung_rank_is_named(run_profile, script):
    # GIVEN a rank that stops stepping after a while
    path = script("""
        for number in range(10**9):
            step()
            if number == 400 and rank == 1:
                time.sleep(1000)
    """)
    outcome = run_profile(path, noise=0.05, budget=20)
    # THEN the run ends by itself and says how far it got; the rank that waits for the other is not blamed
    refused(outcome, 1, "no rank of train.py ended a step", "(401 steps")
    assert "rank 0" not in outcome.error
