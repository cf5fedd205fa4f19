"""A loop that ends by itself: it breaks, counts a range, or both loops simply end."""

import argparse

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("model", help="where the trained model goes")
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--how", choices=["break", "range"], default="break")
args = parser.parse_args()

dist.init_process_group("gloo")
dataset = ArrayFolder(args.data)
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(pictures: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(pictures), labels).backward()
    optimizer.step()


if args.how == "break":
    for step, (pictures, labels) in enumerate(loader, 1):
        train(pictures, labels)
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
        train(*batch)

dist.barrier()
torch.save(model.module.state_dict(), args.model)
dist.destroy_process_group()
