"""The whole step, the optimizer's included, inside torch.compile."""

import sys

import torch
from pictures import loader, network

model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="eager")
def step(images, labels):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for _ in range(500):
    for images, labels in loader(f"{sys.argv[1]}/train"):
        step(images, labels)
