# stash profile examples/streaming.py data/text
"""A small language model on a stream of token files, which ranks and their loader workers share out among them."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCABULARY, LENGTH, WIDTH = 65536, 128, 64


class TokenStream(IterableDataset):
    """Sequences of token ids (uint16) from the ``.bin`` files of a folder, each read by one worker of one rank."""

    def __init__(self, folder, rank, world):
        self.files = sorted(Path(folder).glob("*.bin"))
        self.rank, self.world = rank, world

    def __iter__(self):
        worker = get_worker_info()
        parts = self.world * (worker.num_workers if worker else 1)
        part = self.rank * (worker.num_workers if worker else 1) + (worker.id if worker else 0)
        size = 2 * (LENGTH + 1)
        for file in self.files:
            with file.open("rb") as tokens:
                for start in range(part * size, file.stat().st_size - size, parts * size):
                    tokens.seek(start)
                    ids = np.frombuffer(tokens.read(size), np.uint16).astype(np.int64)
                    yield ids[:-1], ids[1:]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 1024)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, ids):
        return self.head(self.layers(self.embedding(ids), mask=self.mask, is_causal=True))


parser = argparse.ArgumentParser()
parser.add_argument("data", help="a folder of token files")
parser.add_argument("--batch-size", type=int, default=8, help="per device")
parser.add_argument("--steps", type=int, default=100_000)
args = parser.parse_args()

dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
on_gpu = torch.cuda.is_available()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
stream = TokenStream(args.data, dist.get_rank(), dist.get_world_size())
loader = DataLoader(stream, args.batch_size, num_workers=1, drop_last=True)
model = DistributedDataParallel(Model().to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

step = 0
while step < args.steps:
    for inputs, targets in loader:
        logits = model(inputs.to(device))
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.to(device).flatten() % 1024
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
dist.destroy_process_group()
