"""torchdata nodes: a graph of sampler, threads that map, batches and prefetching, in place of a DataLoader."""

import sys

import torch
from pictures import BATCH, network, pictures
from torch.utils.data import RandomSampler, default_collate
from torchdata.nodes import Batcher, Loader, ParallelMapper, Prefetcher, SamplerWrapper

dataset = pictures(f"{sys.argv[1]}/train")
indices = Batcher(SamplerWrapper(RandomSampler(dataset)), BATCH)
batches = ParallelMapper(
    indices,
    lambda chosen: default_collate([dataset[each] for each in chosen]),
    num_workers=1,
    method="thread",
)
loader = Loader(Prefetcher(batches, prefetch_factor=2))
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
