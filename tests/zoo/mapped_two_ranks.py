"""One big file, mapped and read by every rank before its first step, from which its workers then make batches."""

import argparse

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("rows", help="a .npy file of float32 rows")
parser.add_argument("--workers", type=int, default=0)
args = parser.parse_args()


class Mapped(Dataset):
    """Rows of an array that stays mapped."""

    def __init__(self, file):
        self.rows = np.load(file, mmap_mode="r")
        # every page of it is in this process's tables from here on
        self.mean = float(self.rows.mean())

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.from_numpy(self.rows[index] - self.mean), index % 10


dist.init_process_group("gloo")
dataset = Mapped(args.rows)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, 16, sampler=sampler, num_workers=args.workers)
features = dataset.rows.shape[1]
model = DistributedDataParallel(
    nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, 10))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(1000):
    sampler.set_epoch(epoch)
    for rows, labels in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
dist.destroy_process_group()
