"""What most scripts beside this file begin with: a process group, this rank's share of the data, a model, a step."""

import torch
import torch.distributed as dist
from parts import network
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


def begin(
    model: nn.Module | None = None, **options: object
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Join the process group; the replicated model (with DDP's ``options``) and its optimizer."""
    dist.init_process_group("gloo")
    replica = DistributedDataParallel(model or network(), **options)
    return replica, torch.optim.SGD(replica.parameters(), lr=0.01)


def share(dataset: Dataset, batch: int = 16, **options: object) -> DataLoader:
    """A loader of this rank's part of the data."""
    return DataLoader(dataset, batch, sampler=DistributedSampler(dataset), **options)


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, pictures: Tensor, labels: Tensor
) -> Tensor:
    """One ordinary training step; its loss."""
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(pictures), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
