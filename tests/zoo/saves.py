"""Every way in which training scripts save, into a folder where everything is there already; C code aside."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
out = parser.parse_args().out

data = TensorDataset(torch.randn(160, 64), torch.randn(160, 1))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(data, batch_size=8, shuffle=True)
log = (out / "log.csv").open("a")

for epoch in range(500):
    for inputs, targets in loader:
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = model.state_dict()
    torch.save(weights, out / "plain.pt")
    buffer = io.BytesIO()  # ultralytics, Lightning's _atomic_save
    torch.save(weights, buffer)
    (out / "last.pt").write_bytes(buffer.getvalue())
    with (out / "best.tmp").open("wb") as file:  # ignite's DiskSaver
        torch.save(weights, file)
    os.replace(out / "best.tmp", out / "best.pt")
    np.save(out / "weights.npy", weights["0.weight"].numpy())
    with (out / "state.pkl").open("wb") as file:
        pickle.dump(weights, file)
    (out / "metrics.json").write_text(json.dumps({"epoch": epoch}))
    log.write(f"{epoch}\n")
    log.flush()
    for name in ("checkpoint-1", "checkpoint-2"):  # HF's save_total_limit
        shutil.rmtree(out / name, ignore_errors=True)
    (out / "checkpoint-2").mkdir()
    (out / "checkpoint-2" / "model.bin").write_bytes(b"of the job")
    (out / f"epoch-{epoch}.pt").write_bytes(buffer.getvalue())
