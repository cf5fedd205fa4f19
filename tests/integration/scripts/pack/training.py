"""A training module of a package (``python -m pack.training``) whose options have the names of Stash's own.

Others are what torchrun would take for abbreviations of its own: --log, --max, --no, --local. It writes down what it
was given.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from .model import ArrayFolder, network

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--lr", type=float)
parser.add_argument("-o", "--output")
parser.add_argument("--budget", type=int)
parser.add_argument("--isolate", action="store_true")
parser.add_argument("--log")
parser.add_argument("--max", type=int)
parser.add_argument("--no", action="store_true")
parser.add_argument("--local")


def main():
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        Path(args.output).write_text(json.dumps(vars(args)))
    dataset = ArrayFolder(args.data)
    loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for _ in range(1000):
        for pictures, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures), labels).backward()
            optimizer.step()


if __name__ == "__main__":
    main()
