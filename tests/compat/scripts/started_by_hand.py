"""Two ranks that a script starts by hand, each with its variables, and no launcher."""

import os
import subprocess
import sys

import torch
import torch.distributed as dist
from pictures import BATCH, network, pictures
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def train(folder):
    dist.init_process_group("gloo")
    dataset = pictures(f"{folder}/train")
    sampler = DistributedSampler(dataset)
    batches = DataLoader(dataset, BATCH, sampler=sampler, num_workers=1, drop_last=True)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(500):
        sampler.set_epoch(epoch)
        for images, labels in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()


if "RANK" in os.environ:
    train(sys.argv[1])
else:
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29643", "WORLD_SIZE": "2"}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, sys.argv[1]], env={**os.environ, **own, "RANK": str(rank)}
        )
        for rank in range(2)
    ]
    sys.exit(max(process.wait() for process in started))
