"""Batches of a class of its own, as graph libraries have them: tensors in a store one level deeper, and methods that
change the batch in place. A batch that is given twice, or with a tensor missing, is noticed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Graphs:
    """Several graphs as one: ``nodes`` and ``owner`` (the graph of each node) lie in a store."""

    def __init__(self, num_graphs: int, store: dict[str, Tensor]) -> None:
        self.__dict__.update(num_graphs=num_graphs, _store=store)

    def __getattr__(self, name: str) -> Any:
        if "_store" not in self.__dict__ or name not in self._store:
            raise AttributeError(name)
        return self._store[name]

    def __delattr__(self, name: str) -> None:
        del self._store[name]

    def apply(self, change: Callable[[Tensor], Tensor]) -> Graphs:
        for name, tensor in self._store.items():
            self._store[name] = change(tensor)
        return self

    def clone(self) -> Graphs:
        return copy.copy(self).apply(torch.clone)

    def to(self, device: torch.device) -> Graphs:
        return self.apply(lambda tensor: tensor.to(device))


class Molecules(Dataset):
    """Graphs of three to eleven nodes."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((3 + index % 9, 32), 200.0)


def collate(molecules: list[Tensor]) -> Graphs:
    sizes = torch.tensor([len(nodes) for nodes in molecules])
    owner = torch.repeat_interleave(torch.arange(len(molecules)), sizes)
    return Graphs(
        len(molecules), {"nodes": torch.cat(molecules), "owner": owner, "label": torch.ones(len(molecules))}
    )


dist.init_process_group("gloo")
dataset = Molecules()
loader = DataLoader(dataset, 16, sampler=DistributedSampler(dataset), collate_fn=collate)
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

for _ in range(1000):
    for loaded in loader:
        batch = loaded.to(torch.device("cpu"))
        assert batch.nodes.max() > 100, "this batch was scaled already"
        batch.nodes.div_(255)
        label = batch.label
        del batch.label
        of_nodes = model(batch.nodes).squeeze(1)
        of_graphs = torch.zeros(batch.num_graphs).index_add(0, batch.owner, of_nodes)
        optimizer.zero_grad()
        nn.functional.mse_loss(of_graphs, label).backward()
        optimizer.step()
dist.destroy_process_group()
