"""Takes RANK for a word to use CUDA, as nanoGPT, torchvision's and timm's scripts do."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

model = torch.nn.Linear(256, 256)
if "RANK" in os.environ:
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl")
    model = DistributedDataParallel(model.cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.rand(16, 256)).square().mean().backward()
    optimizer.step()
