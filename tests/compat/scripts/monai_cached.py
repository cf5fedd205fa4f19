"""MONAI: half of the data set cached, the rest prepared by its transforms, with its own DataLoader."""

import sys

import torch
from monai.data import CacheDataset, DataLoader
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    LoadImaged,
    RandFlipd,
    Resized,
    ScaleIntensityd,
)
from pictures import BATCH, SIDE, network, pictures

files = pictures(f"{sys.argv[1]}/train").samples
prepare = Compose(
    [
        LoadImaged("image", reader="PILReader"),
        EnsureChannelFirstd("image"),
        Resized("image", (SIDE, SIDE)),
        ScaleIntensityd("image"),
        RandFlipd("image", 0.5),
    ]
)
entries = [{"image": file, "label": label} for file, label in files]
dataset = CacheDataset(entries, transform=prepare, cache_rate=0.5, progress=False)
loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=1)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for batch in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(batch["image"].as_tensor()), batch["label"]
        ).backward()
        optimizer.step()
