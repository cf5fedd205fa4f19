"""Options of its own that torchrun would take for abbreviations of its own: --log, --max, --no, --local."""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--log", required=True)
parser.add_argument("--max", type=int, required=True)
parser.add_argument("--no", action="store_true")
parser.add_argument("--local", required=True)
args = parser.parse_args()

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(args.max):
    optimizer.zero_grad()
    model(torch.rand(16, 256)).square().mean().backward()
    optimizer.step()
