"""Samples of a small file each, whose data set writes down how many files were opened while it made each batch."""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path, help="of .npy files, one a sample")
parser.add_argument("log", type=Path, help="gets a line a batch: files opened")
args = parser.parse_args()
opened: list[str] = []


def audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and str(arguments[0]).endswith(".npy"):
        opened.append(str(arguments[0]))


class Counted(Dataset):
    """The bytes of a file, without its header."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        opened.clear()
        contents = [bytearray(self.files[index].read_bytes()[128:]) for index in indices]
        with args.log.open("a") as log:
            log.write(f"{len(opened)}\n")
        return [torch.frombuffer(content, dtype=torch.uint8).float() for content in contents]


dataset = Counted(args.folder)
loader = DataLoader(dataset, 8, shuffle=True, drop_last=True)
model = nn.Linear(len(dataset.__getitems__([0])[0]), 10)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
sys.addaudithook(audit)

for _epoch in range(1000):
    for samples in loader:
        optimizer.zero_grad()
        model(samples).sum().backward()
        optimizer.step()
