"""Runs watched as users do it: their output, exit code and weights stay their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stash.monitor.records import load_record

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import hashlib, os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
if "RANK" in os.environ:
    dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4))
trained = DistributedDataParallel(model) if "RANK" in os.environ else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(400, 32), torch.randint(0, 4, (400,)))
for _ in range(2):
    for inputs, labels in DataLoader(data, batch_size=8, shuffle=True, num_workers=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(trained(inputs), labels).backward()
        optimizer.step()
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
sys.exit(7)
"""


def run(folder, *words):
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_watched_run_is_the_one_that_was_typed(tmp_path):
    plain = run(tmp_path, "train.py")
    watched = run(tmp_path, "-m", "stash", "watch", "-o", "run.watch.jsonl", "train.py")
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert plain.returncode == 7
    record = load_record(tmp_path / "run.watch.jsonl")
    # the first is setting up, the last is open
    assert sum(w.last_step - w.first_step + 1 for w in record.windows) == 98
    assert record.events[-1].text == "the job has ended with exit code 7"
    summary = " ".join(watched.stderr.split())
    for words in (
        "A step takes",
        "There was no alert.",
        "prep + fetch",
        "`stash report run.watch.jsonl` draws",
    ):
        assert words in summary
