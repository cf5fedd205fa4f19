"""What several scripts of the matrix train: a small network on a folder of pictures."""

from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

SIDE, BATCH = 64, 16


def network():
    """Some 15 ms a picture batch on a CPU core."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 1, 1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(1024, 2),
    )


def pictures(folder):
    """One class a folder."""
    return datasets.ImageFolder(
        folder, transforms.Compose([transforms.Resize((SIDE, SIDE)), transforms.ToTensor()])
    )


def loader(folder, shuffle=True):
    """The usual loader, with one worker."""
    return DataLoader(pictures(folder), BATCH, shuffle=shuffle, num_workers=1, drop_last=True)
