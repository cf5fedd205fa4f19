"""No loader at all: random batches, made in the loop."""

import torch
import torch.distributed as dist
from parts import CLASSES, SIDE, network
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

while True:
    pictures, labels = torch.rand(16, 3, SIDE, SIDE), torch.randint(CLASSES, (16,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()
