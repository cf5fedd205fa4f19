"""A loop that ends by itself: it breaks, counts a range, or both loops simply end."""

import argparse

import torch
import torch.distributed as dist
from ddp import begin, share
from ddp import step as train
from parts import ArrayFolder

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("model", help="where the trained model goes")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--how", choices=["break", "range"], default="break")
args = parser.parse_args()

model, optimizer = begin()
loader = share(ArrayFolder(args.data))

if args.how == "break":
    for step, (pictures, labels) in enumerate(loader, 1):
        train(model, optimizer, pictures, labels)
        if step >= args.steps:
            break
else:
    batches = iter(loader)
    for _ in range(args.steps):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loader)
            batch = next(batches)
        train(model, optimizer, *batch)

dist.barrier()
torch.save(model.module.state_dict(), args.model)
dist.destroy_process_group()
