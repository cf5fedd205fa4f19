"""A compiled model."""

import sys

import torch
from ddp import begin, share, step
from parts import ArrayFolder

model, optimizer = begin()
loader = share(ArrayFolder(sys.argv[1]), drop_last=True)
model = torch.compile(model)

for _ in range(1000):
    for pictures, labels in loader:
        step(model, optimizer, pictures, labels)
