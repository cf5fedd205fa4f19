"""Real trainings with Ray that lose machines, on this machine."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from stash.measure.linux.processes import find_by_variable
from tests.faults.exactly_once import ON_RAY, suffer_on_ray

if find_spec("ray") is None:  # to import it takes seconds
    pytest.skip("could not import 'ray'", allow_module_level=True)
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
def folder(tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "pool.yaml").write_text(POOL)
    words = (
        "plan",
        "--pool",
        "pool.yaml",
        "--deadline",
        "22s",
        "--loss",
        "0.01",
        "-o",
        "job.plan.json",
    )
    subprocess.run(_command(*words), cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def _command(*words):
    return (sys.executable, "-m", "stash", "spot", *words)


def _marked(folder):
    """An environment that tells this test's processes from those of others."""
    return {**os.environ, "STASH_REHEARSED": str(folder)}


def _left(folder):
    """Processes of the test's runs that outlived them."""
    return find_by_variable("STASH_REHEARSED", str(folder))


def _done(folder, job, *words):
    done = subprocess.run(
        _command("run", "job.plan.json", f"job.py:{job}", *words, "-o", "run.spotlog.json"),
        cwd=folder,
        env=_marked(folder),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert _left(folder) == []
    return done


def _ran(folder, *words, job="job"):
    done = _done(folder, job, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    log = json.loads((folder / "run.spotlog.json").read_text())
    assert log["books"]["wrong"] is None, log["books"]
    return log


def test_one_leaves_in_order_and_one_vanishes(folder):
    log = _ran(
        folder,
        "--on",
        "local",
        "--seconds",
        "40s",
        "--revoke",
        "worker1@5s,notice=5s",
        "--revoke",
        "worker2@15s",
    )
    noticed, missed = log["takeovers"]
    assert (noticed["gone"], noticed["successor"], noticed["notice"]) == ("worker1", "worker3", 5.0)
    assert (missed["gone"], missed["notice"]) == ("worker2", None)
    assert all(each["decided_seconds"] < 5 for each in (noticed, missed))


@pytest.mark.parametrize("case", ON_RAY, ids=[case[0] for case in ON_RAY])
def test_whatever_happens_to_rays_actors_is_noticed_and_every_sample_counts_once(case, tmp_path):
    found = suffer_on_ray(*case, tmp_path)
    assert (found.lost, found.doubled) == (0, 0), found
    assert found.exits == (2, 130) if case[3] == "both" else found.exits[-1] == 0, found
    assert found.noticed_seconds is None or found.noticed_seconds < 30
    assert find_by_variable("STASH_BENCHED", str(tmp_path)) == []


def test_an_optimizer_that_fails_on_a_server_ends_the_run_with_its_text(folder):
    done = _done(folder, "breaks", "--on", "local", "--seconds", "60s")
    assert done.returncode == 1
    assert "server1 failed: Breaks.step() failed: ValueError: no more of this" in done.stderr
