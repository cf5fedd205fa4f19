"""A loader made again for every epoch, as curricula do, and one for validation."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(160, 64), torch.randn(160, 1))
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(400):
    taken = 0
    for inputs, targets in DataLoader(data, batch_size=8, shuffle=True):
        time.sleep(0.002)
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        taken += 1
    assert taken == 20
    for inputs, _targets in DataLoader(data, batch_size=8):
        time.sleep(0.1)
        model(inputs)
