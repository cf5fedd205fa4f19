"""Batch normalisation, whose buffers DDP broadcasts before every forward."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network(norm=True), broadcast_buffers=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
