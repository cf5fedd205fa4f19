"""Automatic mixed precision in bfloat16 with a gradient scaler."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(dataset, 8, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network(width=8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
