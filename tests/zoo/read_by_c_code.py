"""Samples of two files: a small label that Python opens, and a large picture that only C code reads."""

import argparse
import ctypes
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path, help="of pairs N.txt and N.bin")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--compute", type=float, default=0.02, help="seconds that a step takes besides")
args = parser.parse_args()
libc = ctypes.CDLL(None)


class Pairs(Dataset):
    """What is in each picture is said by its label."""

    def __init__(self, folder: Path) -> None:
        self.labels = sorted(folder.glob("*.txt"))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = int(self.labels[index].read_text().split()[0])
        picture = self.labels[index].with_suffix(".bin")
        size = picture.stat().st_size
        pixels = bytearray(size)
        descriptor = libc.open(os.fsencode(picture), os.O_RDONLY)
        libc.read(descriptor, (ctypes.c_char * size).from_buffer(pixels), size)
        libc.close(descriptor)
        return torch.frombuffer(pixels, dtype=torch.uint8)[:1024].float(), label


loader = DataLoader(Pairs(args.folder), 8, shuffle=True, num_workers=args.workers, drop_last=True)
model = nn.Linear(1024, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

for _epoch in range(1000):
    for pictures, labels in loader:
        time.sleep(args.compute)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
