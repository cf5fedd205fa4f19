"""Gradient accumulation that ramps up, from two batches of eight to seven, by one after every so many steps."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

per_ramp = int(sys.argv[1])
loader = DataLoader(TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,))), 8, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

steps = micro = 0
for _ in range(1000):
    for inputs, labels in loader:
        wanted = min(7, 2 + steps // per_ramp)
        (nn.functional.cross_entropy(model(inputs), labels) / wanted).backward()
        micro += 1
        if micro == wanted:
            optimizer.step()
            optimizer.zero_grad()
            steps, micro = steps + 1, 0
