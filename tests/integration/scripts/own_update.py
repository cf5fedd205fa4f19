"""No optimizer: the gradients of two batches are used by hand, as tutorials do it."""

import argparse

import torch
import torch.distributed as dist
from ddp import share
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("data")
args = parser.parse_args()

dist.init_process_group("gloo")
model = DistributedDataParallel(network())
loader = share(ArrayFolder(args.data), 8)
for _ in range(1000):
    for number, (pictures, labels) in enumerate(loader):
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        if number % 2:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.01 * parameter.grad)
                    parameter.grad.zero_()
