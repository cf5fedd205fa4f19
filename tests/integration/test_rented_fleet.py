"""A rented fleet from its request to its end, with the scripts that machines would run: only the clouds are played.

``sky``, ``ssh`` and ``scp`` stand on PATH (``tests/support/fake_sky``) and run the tasks on this machine, in
namespaces of their own. Ray, the head, the servers, the workers and who watches beside them are the real ones.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from rented_runs import ADDRESS, run_apart
from spot_fleets import plan

JOB = """
import torch
import stash.spot

class Data(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(2000, 8, generator=torch.Generator().manual_seed(0))
        self.y = 0.6 * self.x.sum(dim=1, keepdim=True)
    def __len__(self):
        return len(self.x)
    def __getitem__(self, number):
        return self.x[number], self.y[number]

def model():
    return torch.nn.Linear(8, 1)

def loss(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])

def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.00003)

job = stash.spot.Job(model, loss, optimizer, Data, batch=64)
"""
RUN = """
from pathlib import Path
from stash.spot.commands.rented_fleet import RunOptions, run_rented
place = {"infra": "aws/us-east-1", "max_dollars": 25.0, "yes": True}
run_rented(RunOptions(plan=Path("job.plan.json"), job="job.py:job", **place))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and namespaces"),
    pytest.mark.skipif(
        find_spec("ray") is None or find_spec("stash.spot.train.head") is None,
        reason="needs Ray, and what it runs",
    ),
]


def test_a_fleet_is_rented_hears_of_a_revocation_trains_to_its_loss_and_is_gone(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "job.plan.json").write_text(small_plan())
    strangers: list[str] = []
    threading.Thread(target=give_notice, args=(tmp_path / "fake", strangers), daemon=True).start()
    done, unended = run_apart(tmp_path, RUN, 550)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "loss reached" in done.stdout
    assert "worker2 (g3.8xlarge) will be taken away in 0 s\nrent " in done.stdout
    trained = tmp_path / "job.run/trained"
    assert (trained / "model.pt").stat().st_size > 0
    (end,) = [each for each in map(json.loads, (trained / "events.jsonl").open()) if each["what"] == "ended"]
    assert (end["books"]["wrong"], end["books"]["repeated"]) == (None, 0)
    assert [list((tmp_path / "fake" / kind).iterdir()) for kind in ("clusters", "jobs")] == [[], []]
    assert unended == []
    assert ["AuthenticationError" in text for text in strangers] == [True]


def give_notice(fake: Path, strangers: list[str]) -> None:
    """SIGTERM to who watches beside the second worker, once that trains: as Slurm and Kubernetes give it.

    Then somebody without the run's secret asks its Ray: ``strangers`` gets what is said to that.
    """
    events = fake / "home/stash-spot/events.jsonl"
    while not (events.exists() and '"joined", "who": "worker2"' in events.read_text()):
        time.sleep(0.5)
    time.sleep(2)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            own = f"FAKE_SKY={fake}".encode() in (process / "environ").read_bytes().split(b"\0")
            if own and words[1:5] == [b"-m", b"stash.spot.rented.worker_agent", b"worker2", b"g3.8xlarge"]:
                os.kill(int(process.name), signal.SIGTERM)
                strangers.append(asked_without_the_secret(process.name))


def asked_without_the_secret(beside: str) -> str:
    """What Ray says to a program in the network of process ``beside``."""
    alone = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    asking = [sys.executable, "-m", "ray.scripts.scripts", "health-check", f"--address={ADDRESS}:6379"]
    words = ["nsenter", "-t", beside, "-n", *asking]
    return subprocess.run(words, env=alone, capture_output=True, text=True, check=False, timeout=60).stderr


def small_plan() -> str:
    """Two workers that a small machine has room for."""
    whole = plan(0.8, 3000.0)
    kinds = tuple(
        kind.model_copy(update={"batch": 64.0, "gpus": 1, "samples_per_second": kind.samples_per_second / 8})
        for kind in whole.pool.types
    )
    assert whole.chosen is not None
    chosen = whole.chosen.model_copy(update={"workers": {"p3.2xlarge": 1, "g3.8xlarge": 1}})
    pool = whole.pool.model_copy(update={"types": kinds})
    return whole.model_copy(update={"loss": 1.2, "pool": pool, "chosen": chosen}).model_dump_json()
