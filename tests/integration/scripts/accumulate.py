"""Gradient accumulation over four batches, without exchange in three: by ``no_sync()``, and by DDP's own switch."""

import contextlib
import sys

import torch
from ddp import begin, share
from parts import ArrayFolder

MICRO_BATCHES = 4

model, optimizer = begin()
loader = share(ArrayFolder(sys.argv[1]), 4, drop_last=True)

for _ in range(1000):
    for number, (pictures, labels) in enumerate(loader):
        turn = number % MICRO_BATCHES
        model.require_backward_grad_sync = turn in (0, MICRO_BATCHES - 1)
        with model.no_sync() if turn == 0 else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(model(pictures), labels) / MICRO_BATCHES
            loss.backward()
        if turn == MICRO_BATCHES - 1:
            optimizer.step()
            optimizer.zero_grad()
