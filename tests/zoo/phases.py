"""Leaves word when it has stepped, and steps so slowly that a test can act in each phase of a profile."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

stepped, seconds = Path(sys.argv[1]), float(sys.argv[2])
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for batch in DataLoader(torch.rand(512, 64), 8, num_workers=1):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        stepped.touch()
        time.sleep(seconds)
