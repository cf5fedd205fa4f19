"""Not distributed at all."""

import sys

import torch
from parts import ArrayFolder, network
from torch.utils.data import DataLoader

loader = DataLoader(ArrayFolder(sys.argv[1]), 16, shuffle=True)
model = network()
optimizer = torch.optim.Adam(model.parameters())

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
