"""Validation before training (a sanity check) and after every twenty steps, with a loader of its own."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
train_loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
held_out = DataLoader(dataset, 24, sampler=DistributedSampler(dataset, shuffle=False))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def accuracy(most: int) -> float:
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for number, (pictures, labels) in enumerate(held_out):
            if number == most:
                break
            counts += torch.tensor([(model(pictures).argmax(1) == labels).sum().item(), len(labels)])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


print(f"before training: {accuracy(2):.2f}")
step = 0
for _ in range(1000):
    for pictures, labels in train_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}: {accuracy(1000):.2f}")
