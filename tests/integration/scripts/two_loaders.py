"""Two training loaders side by side, as in semi-supervised training; one has a batch sampler of the user's own."""

import random
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist
from ddp import begin, share
from parts import ArrayFolder
from torch.utils.data import DataLoader


class RandomGroups:
    """Batches of neighbouring samples, in random order; how many follow nobody knows."""

    def __init__(self, samples: int, batch: int, rank: int) -> None:
        self.samples, self.batch, self.random = samples, batch, random.Random(rank)

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(7):
            first = self.random.randrange(self.samples - self.batch)
            yield list(range(first, first + self.batch))


model, optimizer = begin()
dataset = ArrayFolder(sys.argv[1])
labelled = DataLoader(dataset, batch_sampler=RandomGroups(len(dataset), 12, dist.get_rank()))
unlabelled = share(dataset, drop_last=True)

for _ in range(1000):
    for (pictures, labels), (more, _) in zip(labelled, unlabelled, strict=False):
        optimizer.zero_grad()
        scores = model(torch.cat([pictures, more]))
        guess = scores[len(pictures) :].argmax(1).detach()
        loss = torch.nn.functional.cross_entropy(scores, torch.cat([labels, guess]))
        loss.backward()
        optimizer.step()
