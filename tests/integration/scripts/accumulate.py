"""Gradient accumulation over four batches, without exchange in the first three."""

import argparse
import contextlib

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

MICRO_BATCHES = 4

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--by-hand", action="store_true", help="set DDP's switch instead of entering no_sync()")
args = parser.parse_args()

dist.init_process_group("gloo")
dataset = ArrayFolder(args.data)
loader = DataLoader(dataset, 4, sampler=DistributedSampler(dataset), drop_last=True)
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for number, (pictures, labels) in enumerate(loader, 1):
        last = number % MICRO_BATCHES == 0
        if args.by_hand:
            model.require_backward_grad_sync = last
        with contextlib.nullcontext() if last or args.by_hand else model.no_sync():
            loss = torch.nn.functional.cross_entropy(model(pictures), labels) / MICRO_BATCHES
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
