"""A job that is another one after its first steps: its loader, or its training thread, was slower in them."""

from __future__ import annotations

import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

FIRST_STEPS = 40
slower = sys.argv[1]
"""What is: ``loader``, ``thread`` or ``nothing``."""
taken = 0


class Samples(Dataset):
    """Ten milliseconds a batch of one; thirty in the first steps, if it is the loader that changes."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.03 if slower == "loader" and taken < FIRST_STEPS else 0.01)
        return torch.ones(8)


model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for sample in DataLoader(Samples()):
    time.sleep(0.04 if slower == "thread" and taken < FIRST_STEPS else 0.02)
    model(sample).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    taken += 1
