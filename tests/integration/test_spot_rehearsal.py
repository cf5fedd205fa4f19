"""Real trainings with Ray that lose machines: on this machine, and on emulated hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from stash.measure.linux.processes import carrying, named
from stash.spot.train import saved_shards

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
loaded = stash.spot.Job(
    model, loss, optimizer, lambda: torch.utils.data.DataLoader(data(), num_workers=2, batch_size=16), batch=16
)
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(16, 16, bias=False) for _ in range(2))
        self.second.weight, self.third = self.first.weight, torch.nn.Linear(16, 1)
        self.register_buffer("scale", torch.full((1,), 0.5), persistent=False)
    def forward(self, inputs): return self.third(self.second(self.first(inputs))) * self.scale
tied = stash.spot.Job(Tied, loss, optimizer, data, batch=16)
class Breaks(torch.optim.SGD):
    steps = 0
    def step(self, closure=None):
        Breaks.steps += 1
        if Breaks.steps > 20: raise ValueError("no more of this")
        super().step(closure)
breaks = stash.spot.Job(model, loss, lambda parameters: Breaks(parameters, 1e-3), data, batch=16)
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


def _left(folder: Path) -> list[int]:
    """Processes of the test's runs that outlived them."""
    return carrying("STASH_REHEARSED", str(folder))


def _done(folder: Path, job: str, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        _command("run", "job.plan.json", f"job.py:{job}", *words, "-o", "run.spotlog.json"),
        cwd=folder, env=_marked(folder), capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert _left(folder) == []
    return done


def _ran(folder: Path, *words: str, job: str = "job") -> dict[str, Any]:
    done = _done(folder, job, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    log: dict[str, Any] = json.loads((folder / "run.spotlog.json").read_text())
    assert log["books"]["wrong"] is None, log["books"]
    return log


@pytest.mark.parametrize("job", ["job", "loaded"])
def test_on_this_machine_a_killed_worker_and_a_killed_server_are_replaced(folder: Path, job: str) -> None:
    words = ("--on", "local", "--seconds", "15s", "--checkpoint-dir", "kept", "--checkpoint-every", "3s")
    log = _ran(folder, *words, "--revoke", "worker1@3s", "--revoke", "server1@10s", job=job)
    what = [(event["what"], event["who"]) for event in log["events"]]
    assert ("lost", "worker1") in what
    assert ("joined", "worker3") in what
    assert ("server joined", "server2") in what
    assert (folder / "kept" / "model.pt").exists()


@pytest.mark.parametrize(("kind", "role", "seconds"), [("WorkerActor", "worker", 4), ("ServerActor", "server", 60)])
def test_who_hangs_is_noticed_within_thirty_seconds_and_nothing_of_it_is_lost(
    folder: Path, kind: str, role: str, seconds: int
) -> None:
    """A worker that stops shortly before the end, when no other is started in its place; and a server before that."""
    words = ("--on", "local", "--seconds", f"{seconds}s", "--checkpoint-dir", "kept", "--checkpoint-every", "1s")
    process = subprocess.Popen(
        _command("run", "job.plan.json", "job.py:job", *words, "-o", "run.spotlog.json"), cwd=folder,
        env=_marked(folder), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    while not list((folder / "kept").glob("shard0-*1.ckpt")):
        assert process.poll() is None
        time.sleep(0.1)
    stopped = min(set(_left(folder)) & set(named(f"ray::{kind}")))
    os.kill(stopped, signal.SIGSTOP)
    output = process.communicate(timeout=150)[1]
    assert process.returncode == 0, output
    assert _left(folder) == []
    log = json.loads((folder / "run.spotlog.json").read_text())
    assert log["books"]["wrong"] is None
    assert (log["books"]["out"], log["books"]["waiting"]) == (0, 0)
    assert log["books"]["done"] == log["books"]["issued"]
    (hangs,) = (event for event in log["events"] if event["what"] == "hangs")
    assert hangs["who"].startswith(role)
    since = max(at for at, who in zip(log["updates"]["seconds"], log["updates"]["worker"], strict=True)
                if at < hangs["at"] and (role == "server" or who == hangs["who"]))  # fmt: skip
    assert hangs["at"] - since < 30


@pytest.mark.skipif(os.geteuid() != 0, reason="emulated hosts need root")
def test_on_emulated_hosts_one_leaves_in_order_and_one_vanishes(folder: Path) -> None:
    log = _ran(
        folder, "--on", "testbed", "--seconds", "40s", "--revoke", "worker1@5s,notice=5s", "--revoke", "worker2@15s"
    )
    noticed, missed = log["takeovers"]
    assert (noticed["gone"], noticed["successor"], noticed["notice"]) == ("worker1", "worker3", 5.0)
    assert (missed["gone"], missed["notice"]) == ("worker2", None)
    assert all(each["decided_seconds"] < 5 for each in (noticed, missed))


def test_the_saved_model_of_tied_weights_is_whole(folder: Path) -> None:
    _ran(folder, "--on", "local", "--seconds", "5s", "--checkpoint-dir", "kept", job="tied")
    saved = torch.load(folder / "kept" / "model.pt", weights_only=True)
    assert sorted(saved) == ["first.weight", "second.weight", "third.bias", "third.weight"]
    assert torch.equal(saved["first.weight"], saved["second.weight"])


def test_an_optimizer_that_fails_on_a_server_ends_the_run_with_its_text(folder: Path) -> None:
    done = _done(folder, "breaks", "--on", "local", "--seconds", "60s")
    assert done.returncode == 1
    assert "server1 failed: Breaks.step() failed: ValueError: no more of this" in done.stderr


def test_a_killed_head_can_be_resumed_and_every_sample_counts_once(folder: Path) -> None:
    words = ("job.plan.json", "job.py:job", "--on", "local", "--seconds", "6s", "--checkpoint-dir", "kept")
    first = (*words, "--checkpoint-every", "1s", "--revoke", "worker1@1s")
    process = subprocess.Popen(
        _command("run", *first), cwd=folder, env=_marked(folder), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    while not list((folder / "kept").glob("shard0-*1.ckpt")):
        assert process.poll() is None
        time.sleep(0.1)
    (head,) = set(_left(folder)) & set(named("stash.spot.train.head"))
    os.kill(head, signal.SIGKILL)
    output = process.communicate(timeout=90)[1]
    assert process.returncode == 1
    assert _left(folder) == []
    again = ("stash", "spot", "run", *words, "--checkpoint-every", "1s")
    assert "the head was killed by SIGKILL; the same command without --revoke resumes from its last" in output
    kept = saved_shards.newest(folder / "kept", 0)
    before = sum(stop - start for start, stop in kept.facts["applied"])
    resumed = subprocess.run(
        (sys.executable, "-m", *again, "-o", "run.spotlog.json"), cwd=folder, env=_marked(folder), timeout=240,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    log = json.loads((folder / "run.spotlog.json").read_text())
    assert (log["books"]["wrong"], log["books"]["repeated"]) == (None, 0)
    assert log["books"]["done"] == before + sum(log["updates"]["samples"])
