"""A communication hook of the user's own choice: half-precision gradients, or PowerSGD."""

import argparse

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--hook", choices=["fp16", "powersgd"], default="fp16")
args = parser.parse_args()

dist.init_process_group("gloo")
dataset = ArrayFolder(args.data)
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network())
if args.hook == "fp16":
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
else:
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for pictures, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
