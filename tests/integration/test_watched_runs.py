"""Runs watched as users do it: their output, exit code and weights stay their own, from outside and from inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import hashlib, os, sys, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
import stash
if "RANK" in os.environ:
    dist.init_process_group("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 4))
trained = DistributedDataParallel(model) if "RANK" in os.environ else model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(400, 32), torch.randint(0, 4, (400,)))
def train():
    for _ in range(2):
        for inputs, labels in DataLoader(data, batch_size=8, shuffle=True, num_workers=1):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(trained(inputs), labels).backward()
            optimizer.step()
if "inside" in sys.argv:
    windows = []
    with stash.watching(output="run.watch.jsonl", log=windows.append):
        train()
    print(len(windows), "windows")
else:
    train()
weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
print("weights", hashlib.sha256(weights).hexdigest())
sys.exit(7)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_run_watches_itself_and_leaves_nothing_behind(tmp_path: Path) -> None:
    plain = run(tmp_path, "train.py")
    inside = run(tmp_path, "train.py", "inside")
    windows, weights = inside.stdout.splitlines()
    assert windows == "1 windows"
    assert weights == plain.stdout.strip()
    shown = run(tmp_path, "-m", "stash", "show", "run.watch.jsonl", "--json")
    assert json.loads(shown.stdout)["steps"] == 98
