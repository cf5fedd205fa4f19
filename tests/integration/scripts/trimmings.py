"""All that surrounds everyday training at once.

Four batches are accumulated for each step, without exchange in three: by ``no_sync()``, and by DDP's own switch. A
communication hook compresses gradients, and DDP finds a branch unused. The script has collectives of its own, a
sanity check, a validation every twenty steps (which takes as long as a larger set would need), a checkpoint every
five, replaced as careful scripts do it, and saves the model at the end.
"""

import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from ddp import begin, share
from parts import CLASSES, ArrayFolder, network
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.utils.data import DataLoader, DistributedSampler

MICRO_BATCHES = 4


class Forked(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = network()
        self.taken = nn.Linear(CLASSES, CLASSES)
        self.unused = nn.Linear(CLASSES, CLASSES)

    def forward(self, pictures):
        return self.taken(self.trunk(pictures))


parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("folder")
parser.add_argument("--hook", choices=["fp16", "powersgd"], default="fp16")
args = parser.parse_args()

torch.manual_seed(0)
if args.hook == "fp16":
    model, optimizer = begin(Forked(), find_unused_parameters=True)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
else:  # with unused parameters it fails on gloo by itself
    model, optimizer = begin()
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
dataset = ArrayFolder(args.data)
loader = share(dataset, 4, drop_last=True)
held_out = DataLoader(dataset, 24, sampler=DistributedSampler(dataset, shuffle=False))


def accuracy(most):
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for number, (pictures, labels) in enumerate(held_out):
            if number == most:
                break
            time.sleep(0.05)
            counts += torch.tensor(
                [(model(pictures).argmax(1) == labels).sum().item(), len(labels)]
            )
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def log(step, loss, hits):
    """Mean loss and all ranks' accuracies in every step, a line in every second."""
    dist.all_reduce(loss.clone())
    everyone = [torch.zeros_like(hits) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, hits)
    if step % 2 == 0:
        dist.reduce(loss.clone(), dst=0)
        records = [None] * dist.get_world_size()
        dist.all_gather_object(records, step)
        dist.barrier()
        assert len(set(records)) == 1, f"ranks are at different steps: {records}"


print(f"before training: {accuracy(2):.2f}")
step = 0
for _ in range(50):
    for number, (pictures, labels) in enumerate(loader):
        turn = number % MICRO_BATCHES
        model.require_backward_grad_sync = turn in (0, MICRO_BATCHES - 1)
        with model.no_sync() if turn == 0 else contextlib.nullcontext():
            scores = model(pictures)
            loss = torch.nn.functional.cross_entropy(scores, labels) / MICRO_BATCHES
            loss.backward()
        if turn < MICRO_BATCHES - 1:
            continue
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        log(step, loss.detach(), (scores.argmax(1) == labels).float().mean())
        if step % 20 == 0:
            print(f"step {step}: {accuracy(1000):.2f}")
        if step % 5 == 0 and dist.get_rank() == 0:
            fresh = os.path.join(args.folder, "checkpoint.pt.tmp")
            torch.save({"step": step, "model": model.module.state_dict()}, fresh)
            os.replace(fresh, os.path.join(args.folder, "checkpoint.pt"))
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(args.folder, "final.pt"))
