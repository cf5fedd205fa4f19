"""An engine like ignite's: it counts the steps of an epoch itself and drops its iterator before it validates."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(160, 64), torch.randn(160, 1))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
train_loader, val_loader = (
    DataLoader(data, batch_size=8, shuffle=True),
    DataLoader(data, batch_size=8),
)

for _ in range(200):
    iterator = iter(train_loader)
    for _ in range(10):
        inputs, targets = next(iterator)
        time.sleep(0.002)
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    del iterator
    time.sleep(0.2)  # metrics
    for inputs, _targets in val_loader:
        model(inputs)
