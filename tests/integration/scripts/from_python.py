"""A program that profiles a function of its own, as a notebook would."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import stash


def train(folder, lr):
    dist.init_process_group("gloo")
    dataset = ArrayFolder(folder)
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    for _ in range(1000):
        for pictures, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    data, target = sys.argv[1:]
    stash.save(stash.profile(train, data, lr=0.1, nproc_per_node=2, noise=0.5, budget=1), target)
