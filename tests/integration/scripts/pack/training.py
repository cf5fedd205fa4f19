"""A training module of a package, started with ``python -m pack.training``."""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from .model import ArrayFolder, network


def main() -> None:
    dist.init_process_group("gloo")
    dataset = ArrayFolder(sys.argv[1])
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(1000):
        for pictures, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
