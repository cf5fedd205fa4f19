"""What surrounds everyday training: a sanity check, validation every twenty steps, the last checkpoint every five.

The checkpoint is replaced as careful scripts do it, by a file beside it; the model is saved at the end. Validation
takes as long as a larger set would need.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from ddp import begin, share, step
from parts import ArrayFolder
from torch.utils.data import DataLoader, DistributedSampler

data, folder = sys.argv[1:]

torch.manual_seed(0)
model, optimizer = begin()
dataset = ArrayFolder(data)
train_loader = share(dataset)
held_out = DataLoader(dataset, 24, sampler=DistributedSampler(dataset, shuffle=False))


def accuracy(most: int) -> float:
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for number, (pictures, labels) in enumerate(held_out):
            if number == most:
                break
            time.sleep(0.05)
            counts += torch.tensor([(model(pictures).argmax(1) == labels).sum().item(), len(labels)])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


print(f"before training: {accuracy(2):.2f}")
steps = 0
for _ in range(3):
    for pictures, labels in train_loader:
        step(model, optimizer, pictures, labels)
        steps += 1
        if steps % 20 == 0:
            print(f"step {steps}: {accuracy(1000):.2f}")
        if steps % 5 == 0 and dist.get_rank() == 0:
            fresh = os.path.join(folder, "checkpoint.pt.tmp")
            torch.save({"step": steps, "model": model.module.state_dict()}, fresh)
            os.replace(fresh, os.path.join(folder, "checkpoint.pt"))
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(folder, "final.pt"))
