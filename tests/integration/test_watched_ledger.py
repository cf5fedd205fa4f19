"""A watched run whose evaluations, saves and starts of epochs have a known length, killed and started again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stash.monitor.records import load_record
from stash.monitor.wall_ledger import wall_ledger

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return torch.ones(4)

class SlowSampler:
    def __len__(self): return 40
    def __iter__(self):
        time.sleep(0.4)
        return iter(range(40))

class Slow:
    def __getstate__(self):
        time.sleep(0.5)
        return {}

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training = DataLoader(Samples(), batch_size=4, sampler=SlowSampler())
validation = DataLoader(Samples(), batch_size=4)
for epoch in range(4):
    for step, batch in enumerate(training):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.05)
        if epoch == 3 and step == 7 and sys.argv[1] == "dies": os._exit(7)
    if epoch % 2:  # as many write it, and as it should be written
        for batch in validation: time.sleep(0.03); model(batch)
    else:
        with torch.no_grad():
            for batch in validation: time.sleep(0.03); model(batch)
    torch.save({"model": model.state_dict(), "slow": Slow()}, "model.pt")
"""


def watch(folder, how):
    words = [sys.executable, "-m", "stash", "watch", "-o", "run.watch.jsonl", "train.py", how]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_every_second_of_both_starts_has_its_row_and_an_epilog_is_one_line(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    assert watch(tmp_path, "dies").returncode == 7
    assert watch(tmp_path, "lives").returncode == 0
    record = load_record(tmp_path / "run.watch.jsonl")
    wall = wall_ledger(record)
    rows = {row.name: row.seconds for row in wall.rows}
    assert sum(rows.values()) == pytest.approx(wall.seconds)
    assert abs(rows.get("not read", 0.0)) < 0.02 * wall.seconds
    assert wall.code == 0
    # Of the first start three, of the second three: what ends the run has no step after it. Noise only adds to them.
    assert 5 * 0.3 <= rows["evaluation"] < 6 * 0.3 * 2
    assert 5 * 0.5 <= rows["checkpoint"] < 6 * 0.5 * 2
    assert 5 * 0.4 <= rows["epoch start"] < 6 * 0.4 * 2
    assert rows["other"] >= 60 * 0.05
    assert rows["down"] > 0
    assert 5 * 0.05 < rows["lost work"] < 4  # what six steps and more took
    words = [sys.executable, "-m", "stash", "watch", "--epilog", "run.watch.jsonl"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"train\.py \S+ (s|min), exit 0: (.* \d+%, ){4}.* \d+%\n", found.stdout)
