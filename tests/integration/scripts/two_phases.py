"""A loop of two phases of known lengths, as reinforcement learning has them: samples are made, and trained on."""

import time

import torch

import stash

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100_000):
    with stash.phase("rollout"), torch.no_grad():
        samples = model(torch.ones(4, 8))
        time.sleep(0.03)
    time.sleep(0.01)
    with stash.phase("train"):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        time.sleep(0.02)
        optimizer.step()
