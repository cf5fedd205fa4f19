"""MONAI: half of the data set cached, the rest prepared by its transforms, with its own DataLoader."""

import sys

import torch
from monai.data import CacheDataset, DataLoader
from monai.transforms import Compose, EnsureChannelFirst, LoadImage, RandFlip, Resize, ScaleIntensity
from pictures import BATCH, SIDE, network, pictures

files = pictures(f"{sys.argv[1]}/train").samples
prepare = Compose([
    LoadImage(image_only=True, reader="PILReader"), EnsureChannelFirst(), Resize((SIDE, SIDE)), ScaleIntensity(),
    RandFlip(0.5),
])  # fmt: skip


def item(entry: tuple[str, int]) -> tuple[torch.Tensor, int]:
    return prepare(entry[0]), entry[1]


dataset = CacheDataset(files, transform=item, cache_rate=0.5, progress=False)
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=1)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images.as_tensor()), labels).backward()
        optimizer.step()
