"""Epochs as most scripts have them: a table indexed by the step, validation and a checkpoint after each."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=60)
parser.add_argument("--batches", type=int, default=20)
options = parser.parse_args()

torch.manual_seed(0)
data = TensorDataset(torch.randn(8 * options.batches, 64), torch.randn(8 * options.batches, 1))
train_loader, val_loader = (
    DataLoader(data, batch_size=8, shuffle=True),
    DataLoader(data, batch_size=8),
)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rates = [0.01 / (1 + step) for step in range(options.epochs * len(train_loader))]

step = 0
for epoch in range(options.epochs):
    taken = 0
    for inputs, targets in train_loader:
        optimizer.param_groups[0]["lr"] = rates[step]  # IndexError past the last epoch
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step, taken = step + 1, taken + 1
    assert taken == len(train_loader), "an epoch has as many batches as the loader says"
    model.eval()
    with torch.no_grad():
        validation = sum(float(torch.nn.functional.mse_loss(model(x), y)) for x, y in val_loader)
    model.train()
    torch.save(model.state_dict(), options.out / "last.pt")
    (options.out / "metrics.txt").write_text(f"{epoch} {validation}\n")
