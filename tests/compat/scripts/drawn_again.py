"""A RandomSampler that draws with replacement: one epoch that is longer than the data set."""

import sys

import torch
from pictures import BATCH, network, pictures
from torch.utils.data import DataLoader, RandomSampler

dataset = pictures(f"{sys.argv[1]}/train")
sampler = RandomSampler(dataset, replacement=True, num_samples=100_000)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for images, labels in DataLoader(dataset, BATCH, sampler=sampler, num_workers=1):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
