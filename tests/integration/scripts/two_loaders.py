"""Two training loaders read side by side, as in semi-supervised training."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

dist.init_process_group("gloo")
dataset = ArrayFolder(sys.argv[1])
labelled = DataLoader(dataset, 8, sampler=DistributedSampler(dataset), drop_last=True)
unlabelled = DataLoader(dataset, 16, sampler=DistributedSampler(dataset), drop_last=True)
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for (pictures, labels), (more, _) in zip(labelled, unlabelled, strict=False):
        optimizer.zero_grad()
        scores = model(torch.cat([pictures, more]))
        guess = scores[len(pictures) :].argmax(1).detach()
        loss = torch.nn.functional.cross_entropy(scores, torch.cat([labels, guess]))
        loss.backward()
        optimizer.step()
