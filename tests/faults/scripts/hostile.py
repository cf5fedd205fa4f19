"""A job that does something to its surroundings once two rounds are measured, and trains on."""

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

LAUNCH = Path(os.environ.get("STASH_ORDERS", "none")).parent
DOES = {
    "remove-run": lambda: shutil.rmtree(LAUNCH.parent),
    "remove-launch": lambda: shutil.rmtree(LAUNCH),
    "remove-output": lambda: shutil.rmtree(sys.argv[2]),
    "remove-temporary": lambda: [shutil.rmtree(path) for path in LAUNCH.parent.parent.iterdir()],
    "close-output": lambda: os.chmod(sys.argv[2], 0o555),
    "fill": lambda: Path(sys.argv[2]).write_bytes(bytes(1 << 30)),
    "take-name": lambda: Path(sys.argv[2]).write_text("somebody else's"),
    "plant-link": lambda: [os.unlink(sys.argv[2]), os.symlink(sys.argv[3], sys.argv[2])],
}


def later():
    journal = LAUNCH / "journal.jsonl"
    while not journal.exists() or journal.read_text().count('"kind": "round"') < 2:
        time.sleep(0.05)
    time.sleep(0.5)  # the launcher has seen them
    DOES[sys.argv[1]]()


threading.Thread(target=later, daemon=True).start()
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(torch.zeros(256, 8)), batch_size=16)
while True:
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(0.02)
