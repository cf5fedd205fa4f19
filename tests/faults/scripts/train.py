"""The job of most cases: a small model on small files of its own, alone or with as many ranks as it finds."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--step-seconds", type=float, default=0.0, help="what a step takes besides")
parser.add_argument("--steps", type=int, default=1_000_000)
args = parser.parse_args()


class Files(Dataset):
    """Samples made of a small file that is read for each."""

    def __init__(self):
        self.file = Path(__file__).with_name("samples.bin")

    def __len__(self):
        return 256

    def __getitem__(self, index):
        with open(self.file, "rb") as file:
            file.seek(64 * index)
            return torch.frombuffer(bytearray(file.read(64)), dtype=torch.uint8).float()


if "WORLD_SIZE" in os.environ:
    dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
if dist.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(Files(), batch_size=16, num_workers=args.workers)
taken = 0
while taken < args.steps:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
        time.sleep(args.step_seconds)
        taken += 1
        if taken == args.steps:
            break
