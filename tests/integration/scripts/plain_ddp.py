"""The plainest distributed loop there is."""

import argparse

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--persistent", action="store_true")
parser.add_argument("--samples", type=int)
parser.add_argument("--batch", type=int, default=16)
args = parser.parse_args()

dist.init_process_group("gloo")
dataset = ArrayFolder(args.data, args.samples)
sampler = DistributedSampler(dataset)
loader = DataLoader(
    dataset,
    args.batch,
    sampler=sampler,
    num_workers=args.workers,
    persistent_workers=args.persistent,
)
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(1000):
    sampler.set_epoch(epoch)
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
dist.destroy_process_group()
