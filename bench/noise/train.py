"""Trains a small network for ever, on one thread per rank: ordinary PyTorch code that computes for real.

Run as ``python train.py --batch 8`` or under torchrun, with a loader that costs processor time (``--hashes``) or
other time (``--sleep``) in the training process or in workers, or with no loader. Knows nothing of Stash's measuring.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CLASSES, SIDE = 10, 48
CHUNK = bytes(2**16)
SAMPLES = 100_000
LOG_EVERY = 20


class Samples(Dataset[tuple[Tensor, int]]):
    """Random images, or vectors; each is made by hashing so many chunks of 64 KiB, and by waiting."""

    def __init__(self, shape, hashes, sleep):
        self._shape, self._hashes, self._sleep = shape, hashes, sleep

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        digest = hashlib.sha256()
        for _ in range(self._hashes):
            digest.update(CHUNK)
        if self._sleep:
            time.sleep(self._sleep)
        return torch.full(self._shape, digest.digest()[0] / 256), index % CLASSES


def network(width, convolutions):
    """Four convolutions, with few parameters, or four linear layers, with many."""
    if not convolutions:
        hidden = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(width, CLASSES))
    widths = (3, width, width, width, width)
    layers = [
        layer
        for before, after in itertools.pairwise(widths)
        for layer in (nn.Conv2d(before, after, 3, padding=1), nn.ReLU())
    ]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


class Repeated(nn.Module):
    """A network that a slow rank computes several times, and trains on the last."""

    def __init__(self, inner, before):
        super().__init__()
        self.inner, self._before = inner, before

    def forward(self, images):
        with torch.no_grad():
            for _ in range(self._before):
                self.inner(images)
        found: Tensor = self.inner(images)
        return found


def batches(options, shape, rank, world):
    """For ever: of the loader, or the same one again and again."""
    if options.no_loader:
        batch = [torch.randn(options.batch, *shape), torch.arange(options.batch) % CLASSES]
        yield from itertools.repeat(batch)
    data = Samples(shape, options.hashes, options.sleep / options.batch)
    sampler: DistributedSampler[tuple[Tensor, int]] = DistributedSampler(data, world, rank)
    loader = DataLoader(
        data,
        options.batch,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    while True:
        yield from loader


def main():
    """Train."""
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    shape = (options.width,) if options.linear else (3, SIDE, SIDE)
    before = options.times if rank == options.slow_rank else 0
    model: nn.Module = Repeated(network(options.width, not options.linear), before)
    if world > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    began = time.monotonic()
    for step, (images, wanted) in enumerate(batches(options, shape, rank, world), 1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), wanted).backward()
        optimizer.step()
        if rank == 0 and step % LOG_EVERY == 0:
            print(
                f"step {step}  {1000 * (time.monotonic() - began) / step:.1f} ms per step",
                flush=True,
            )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument(
        "--width", type=int, default=32, help="channels of a convolution, or units of a layer"
    )
    parser.add_argument(
        "--linear", action="store_true", help="linear layers, whose gradients are large"
    )
    parser.add_argument("--no-loader", action="store_true", help="train on one batch in memory")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument(
        "--hashes", type=int, default=0, help="chunks of 64 KiB to hash for each sample"
    )
    parser.add_argument(
        "--sleep", type=float, default=0.0, help="seconds of waiting for each batch"
    )
    parser.add_argument("--slow-rank", type=int, default=-1)
    parser.add_argument(
        "--times", type=int, default=2, help="forward passes that the slow rank makes besides"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
