"""Tensor parallelism by hand: pairs of ranks share each layer, and those with equal parts average their gradients.

Exchanges take a set time for every further rank that really takes part, so it is known what each scope should cost.
"""

import sys
import time

import torch
import torch.distributed as dist
from parts import ArrayFolder
from torch.utils.data import DataLoader, DistributedSampler

PAIR_SECONDS, GRADIENT_SECONDS = 0.01, 0.06
"""For each rank beyond the first that an exchange reaches."""
GRADIENTS = 125_000
"""Float32 values: 500 kB."""

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
alike = [dist.new_group(list(range(part, world, 2))) for part in range(2)]
pair, replicas = pairs[rank // 2], alike[rank % 2]


def exchange(tensor, group, seconds):
    """All-reduce over a medium as slow as that."""
    met = torch.ones(1)
    dist.all_reduce(met, group=group)
    dist.all_reduce(tensor, group=group)
    time.sleep(seconds * (met.item() - 1))


dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(
    dataset, 4, sampler=DistributedSampler(dataset, num_replicas=world // 2, rank=rank // 2)
)
weight = torch.nn.Parameter(torch.zeros(GRADIENTS))
optimizer = torch.optim.SGD([weight], lr=0.01)
for _ in range(1000):
    for pictures, _labels in loader:
        activations = pictures.mean((1, 2, 3))
        exchange(activations, pair, PAIR_SECONDS)
        weight.grad = torch.full((GRADIENTS,), activations.mean().item())
        exchange(weight.grad, replicas, GRADIENT_SECONDS)
        optimizer.step()
