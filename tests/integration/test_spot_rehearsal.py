"""Real trainings with Ray that lose machines: on this machine, and on emulated hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

JOB = """
import torch, stash.spot
def model(): return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
def loss(model, batch): return torch.nn.functional.mse_loss(model(batch[0]), batch[1])
def optimizer(parameters): return torch.optim.Adam(parameters, 1e-3)
def data():
    inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(0))
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
job = stash.spot.Job(model, loss, optimizer, data, batch=16)
"""
POOL = """
as_of: 2026-11-22
source: a test
exchange_bytes: 1MB
worker_bytes_per_second: 25MB/s
pcie_bytes_per_second: 10GB/s
server: {count: 1, bytes_per_second: 25MB/s, dollars_per_hour: 0.1}
loss: {gamma1: 1, gamma2: 0, gamma3: 1, gamma5: 0}
types: [{name: a, gpus: 1, batch: 16, samples_per_second: 64, quota: 2, dollars_per_hour: 1}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "pool.yaml").write_text(POOL)
    words = ("plan", "--pool", "pool.yaml", "--deadline", "22s", "--loss", "0.01", "-o", "job.plan.json")
    subprocess.run(_command(*words), cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def _command(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "stash", "spot", *words)


def _marked(folder: Path) -> dict[str, str]:
    """An environment that tells this test's processes from those of others."""
    return {**os.environ, "STASH_REHEARSED": str(folder)}


def _left(folder: Path) -> list[str]:
    """Processes of the test's runs that outlived them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"STASH_REHEARSED={folder}".encode() in path.read_bytes().split(b"\0"):
                found.append(path.parts[2])
        except OSError:
            continue
    return found


def _ran(folder: Path, *words: str, seconds: float = 240) -> dict[str, object]:
    done = subprocess.run(
        _command("run", "job.plan.json", "job.py:job", *words, "-o", "run.spotlog.json"),
        cwd=folder, env=_marked(folder), capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    log: dict[str, object] = json.loads((folder / "run.spotlog.json").read_text())
    assert log["books"]["wrong"] is None, log["books"]  # type: ignore[index]
    assert _left(folder) == []
    return log


def test_on_this_machine_a_killed_worker_is_replaced_and_training_goes_on_where_it_was(folder: Path) -> None:
    words = ("--on", "local", "--seconds", "20s", "--checkpoint", "kept", "--checkpoint-every", "3s")
    log = _ran(folder, *words, "--revoke", "worker1@3s", "--revoke", "server1@10s")
    what = [(event["what"], event["who"]) for event in log["events"]]  # type: ignore[attr-defined]
    assert ("lost", "worker1") in what
    assert ("joined", "worker3") in what
    assert ("server joined", "server2") in what
    first = log["books"]["done"]  # type: ignore[index]
    assert (folder / "kept" / "model.pt").exists()
    again = _ran(folder, *words)
    assert again["books"]["done"] > first  # type: ignore[index]


def test_a_job_that_diverges_ends_with_one_sentence_and_keeps_what_was_trained_before(folder: Path) -> None:
    job = (folder / "job.py").read_text()
    plain, calls = "return torch.nn.functional.mse_loss(model(batch[0]), batch[1])", "calls = iter(range(10**9))\n"
    worse = plain + " * (float('nan') if next(calls) > 40 else 1)"
    (folder / "job.py").write_text(calls + job.replace(plain, worse))
    words = ("run", "job.plan.json", "job.py:job", "--on", "local", "--checkpoint", "kept", "-o", "x.spotlog.json")
    done = subprocess.run(
        _command(*words), cwd=folder, env=_marked(folder), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (said,) = done.stderr.strip().splitlines()[-1:]
    assert "the gradients of worker" in said
    assert "are not finite (loss nan), and were not applied" in said
    assert "Traceback" not in done.stderr
    kept = torch.load(folder / "kept" / "model.pt", weights_only=True)
    assert all(value.isfinite().all() for value in kept.values())
    assert _left(folder) == []


def test_an_interrupted_run_keeps_log_and_checkpoint_and_leaves_nothing_running(folder: Path) -> None:
    words = ("run", "job.plan.json", "job.py:job", "--on", "local", "--checkpoint", "kept", "-o", "x.spotlog.json")
    process = subprocess.Popen(_command(*words), cwd=folder, env=_marked(folder), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "training began" in line:
            break
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=90)
    assert process.returncode == 130
    log = json.loads((folder / "x.spotlog.json").read_text())
    assert log["reason"] == "interrupted"
    assert log["books"]["wrong"] is None
    assert list((folder / "kept").glob("shard0-*.ckpt"))
    assert _left(folder) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="emulated hosts need root")
def test_on_emulated_hosts_one_leaves_in_order_and_one_vanishes(folder: Path) -> None:
    log = _ran(
        folder, "--on", "testbed", "--seconds", "40s", "--revoke", "worker1@5s,notice=5s", "--revoke", "worker2@15s"
    )
    told, missed = log["takeovers"]  # type: ignore[misc]
    assert (told["gone"], told["successor"], told["notice"]) == ("worker1", "worker3", 5.0)
    assert (missed["gone"], missed["notice"]) == ("worker2", None)
    assert all(each["decided_seconds"] < 5 for each in (told, missed))
