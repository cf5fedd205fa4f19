"""Batches as dictionaries, from which the script pops its labels."""

import sys

import torch
import torch.distributed as dist
from parts import ArrayFolder, network
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


class Named(ArrayFolder):
    def __getitem__(self, index: int) -> dict[str, Tensor | int | str]:
        picture, label = super().__getitem__(index)
        return {"name": self.files[index].name, "picture": picture, "label": label}


dist.init_process_group("gloo")
dataset = Named(sys.argv[1])
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset))
model = DistributedDataParallel(network())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(1000):
    for batch in loader:
        labels, names = batch.pop("label"), batch.pop("name")
        assert len(names) == len(labels)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.pop("picture")), labels).backward()
        optimizer.step()
