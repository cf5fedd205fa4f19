"""What the scripts beside this file train, and on what: as small as a model and a data set can be."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

CLASSES = 10
SIDE = 32


class ArrayFolder(Dataset):
    """A folder of ``.npy`` pictures; the number in a file's name is its label."""

    def __init__(self, folder, limit=None):
        self.files = sorted(Path(folder).glob("*.npy"))[:limit]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        picture = torch.from_numpy(np.load(file)).float() / 255
        return picture, int(file.stem) % CLASSES


def network(norm=False, width=16):
    """A convolutional classifier that takes some 10 ms for a forward and backward of 16 pictures on one core."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width) if norm else nn.Identity(),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(width * (SIDE // 2) ** 2, 32),
        nn.ReLU(),
        nn.Linear(32, CLASSES),
    )
