"""An iterable data set that shares its files out among ranks and workers."""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from ddp import begin, step
from parts import CLASSES
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Stream(IterableDataset):
    def __init__(self, folder: str) -> None:
        self.files = sorted(Path(folder).glob("*.npy"))

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        worker = get_worker_info()
        parts = worker.num_workers if worker else 1
        part = dist_rank * parts + (worker.id if worker else 0)
        for file in itertools.islice(self.files, part, None, dist_world * parts):
            yield torch.from_numpy(np.load(file)).float() / 255, int(file.stem) % CLASSES


parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()

model, optimizer = begin()
dist_rank, dist_world = dist.get_rank(), dist.get_world_size()
loader = DataLoader(Stream(args.data), 16, num_workers=args.workers, drop_last=True)

for _ in range(1000):
    for pictures, labels in loader:
        step(model, optimizer, pictures, labels)
