"""What most scripts beside this file begin with: a process group, this rank's share of the data, a model, a step."""

import torch
import torch.distributed as dist
from parts import network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def begin(model=None, **options):
    """Join the process group; the replicated model (with DDP's ``options``) and its optimizer."""
    dist.init_process_group("gloo")
    replica = DistributedDataParallel(model or network(), **options)
    return replica, torch.optim.SGD(replica.parameters(), lr=0.01)


def share(dataset, batch=16, **options):
    """A loader of this rank's part of the data."""
    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset), **options)


def step(model, optimizer, pictures, labels):
    """One ordinary training step; its loss."""
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
