"""A batch sampler of the user's own, without a length."""

import random
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader


class RandomGroups:
    """Batches of neighbouring samples, in random order; how many follow nobody knows."""

    def __init__(self, samples: int, batch: int, rank: int) -> None:
        self.samples, self.batch, self.random = samples, batch, random.Random(rank)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(7):
            first = self.random.randrange(self.samples - self.batch)
            yield list(range(first, first + self.batch))


dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(dataset, batch_sampler=RandomGroups(len(dataset), 12, dist.get_rank()))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
