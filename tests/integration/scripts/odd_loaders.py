"""Two training loaders side by side, as in semi-supervised training, both unusual.

Labelled pictures come as dictionaries, by a batch sampler of the user's own; the script empties them and scales the
pictures in place, so that a batch given twice is noticed. Unlabelled ones come from a stream that ranks and their two
workers share.
"""

import random
import sys

import numpy as np
import torch
import torch.distributed as dist
from ddp import begin
from parts import CLASSES, ArrayFolder
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Named(ArrayFolder):
    def __getitem__(self, index):
        file = self.files[index]
        picture = torch.from_numpy(np.load(file)).float()
        return {"name": file.name, "picture": picture, "label": int(file.stem) % CLASSES}


class RandomGroups:
    """Batches of neighbouring samples, in random order; how many follow is unknown."""

    def __init__(self, samples, batch, rank):
        self.samples, self.batch, self.random = samples, batch, random.Random(rank)

    def __iter__(self):
        for _ in range(7):
            first = self.random.randrange(self.samples - self.batch)
            yield list(range(first, first + self.batch))


class Stream(IterableDataset):
    """The files of a rank's worker, again and again."""

    def __init__(self, folder, rank, world):
        self.files, self.rank, self.world = ArrayFolder(folder).files, rank, world

    def __iter__(self):
        worker = get_worker_info()
        parts = worker.num_workers if worker else 1
        first = self.rank * parts + (worker.id if worker else 0)
        for _ in range(2):
            for file in self.files[first :: self.world * parts]:
                yield torch.from_numpy(np.load(file)).float() / 255


model, optimizer = begin()
rank, world = dist.get_rank(), dist.get_world_size()
folder = sys.argv[1]
dataset = Named(folder)
labelled = DataLoader(dataset, batch_sampler=RandomGroups(len(dataset), 12, rank))
unlabelled = DataLoader(
    Stream(folder, rank, world), 16, num_workers=2, persistent_workers=True, drop_last=True
)

for _ in range(1000):
    for batch, more in zip(labelled, unlabelled, strict=False):
        labels, names, pictures = batch.pop("label"), batch.pop("name"), batch.pop("picture")
        assert len(names) == len(labels)
        assert pictures.max() > 100, "this batch was scaled already"
        optimizer.zero_grad()
        scores = model(torch.cat([pictures.div_(255), more]))
        guess = scores[len(pictures) :].argmax(1).detach()
        torch.nn.functional.cross_entropy(scores, torch.cat([labels, guess])).backward()
        optimizer.step()
