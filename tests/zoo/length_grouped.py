"""Batches of sentences of like length, the longest first, as transformers' ``group_by_length`` gives them.

A step takes a set time for each token of its longest sentence, preparing a batch a set time whatever its length.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SENTENCES, BATCH, LONGEST = 320, 8, 40
TOKEN_SECONDS, PREP_SECONDS = 0.001, 0.01


def length_of(index: int) -> int:
    """1 to ``LONGEST`` tokens, one as often as the other."""
    return 1 + index * LONGEST // SENTENCES


class Sentences(Dataset):
    def __len__(self) -> int:
        return SENTENCES

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        time.sleep(PREP_SECONDS)
        return [torch.ones(length_of(index)) for index in indices]


class GroupedByLength:
    """Batches of neighbours in random order, but the longest first: memory that does not suffice shows at once."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return SENTENCES // BATCH

    def __iter__(self) -> Iterator[list[int]]:
        longest = len(self) - 1
        for batch in [longest, *torch.randperm(longest, generator=self.random).tolist()]:
            yield list(range(batch * BATCH, (batch + 1) * BATCH))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        time.sleep(TOKEN_SECONDS * tokens.shape[1])
        return (tokens * self.weight).mean()


def pad(sentences: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True)


parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
options = parser.parse_args()
if "RANK" in os.environ:
    dist.init_process_group("gloo")
model = Model()
model = DistributedDataParallel(model) if dist.is_initialized() else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
sampler = GroupedByLength(int(os.environ.get("RANK", "0")))
loader = DataLoader(Sentences(), batch_sampler=sampler, num_workers=options.workers, collate_fn=pad)
for _ in range(200):
    for tokens in loader:
        optimizer.zero_grad()
        model(tokens).backward()
        optimizer.step()
