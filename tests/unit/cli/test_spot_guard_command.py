"""``stash spot guard``: what it refuses, and a real torchrun that is told to go (slow)."""

import signal
import sys

import pytest
from commands import run
from runs import Started

SCRIPT = """
import time, torch, torch.distributed as dist, stash.spot
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 1)
ddp = torch.nn.parallel.DistributedDataParallel(model)
kept = stash.spot.checkpoint(model=model, every=3600)
for step in range(100000):
    ddp(torch.ones(2, 4)).sum().backward()
    time.sleep(0.05)
    kept.step(step=step + 1)
    if step == 10:
        open("running", "w").close()
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("kept",), "missing argument"),
        (("kept", "--", "no-such-program"), "no-such-program cannot be started: No such file"),
    ],
)
def test_what_cannot_be_guarded_is_said_in_a_sentence(
    words,
    sentence,
    tmp_path,
    monkeypatch,
    capsys,
):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "spot", "guard", *words) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert sentence in printed
    assert "Traceback" not in printed


def test_the_exit_code_is_the_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "spot", "guard", "kept", "--", "sh", "-c", "exit 7") == 7


@pytest.mark.slow
def test_a_torchrun_that_is_told_to_go_saves_first(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "train.py",
    )
    command = (sys.executable, "-m", "stash", "spot", "guard", "kept", "--", *torchrun)
    started = Started(
        command, tmp_path / "none", tmp_path / "log", tmp_path, {"OMP_NUM_THREADS": "1"}, False
    )
    started.wait_until((tmp_path / "running").exists)
    started.popen.send_signal(signal.SIGTERM)
    outcome = started.end()
    assert outcome.code not in (0, 2)
    assert outcome.survivors == []
    assert (
        "stash: SIGTERM: this machine will be gone in 30 s; asking for a checkpoint"
        in outcome.stderr
    )
    assert "stash: a checkpoint is whole after" in outcome.stderr
    assert list((tmp_path / "kept").glob("*.ckpt"))
