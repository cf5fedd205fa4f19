"""A job that saves over the user's checkpoint at every step, and adds to a log, as most do at every epoch."""

import os
import time

import torch
import torch.distributed as dist

if "WORLD_SIZE" in os.environ:
    dist.init_process_group("gloo")
model = torch.nn.Linear(64, 1)
replica = torch.nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = torch.utils.data.DataLoader(torch.randn(256, 64), batch_size=16)
while True:
    for batch in loader:
        optimizer.zero_grad()
        replica(batch).mean().backward()
        optimizer.step()
        time.sleep(0.005)
        with open("last.bin", "wb") as file:
            file.write(os.urandom(1000))
        with open("log.txt", "a") as file:
            file.write("a step\n")
