"""MosaicML streaming: shards written once to a local folder, read by a StreamingDataset with one worker."""

import sys
from pathlib import Path

import numpy as np
import torch
from pictures import BATCH, SIDE, network, pictures
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader

data, out = sys.argv[1], Path(f"{sys.argv[2]}.shards")
if not (out / "index.json").exists():
    with MDSWriter(out=str(out), columns={"picture": "ndarray", "label": "int"}) as writer:
        for picture, label in pictures(f"{data}/train"):
            writer.write({"picture": (picture.numpy() * 255).astype(np.uint8), "label": label})


class Pictures(StreamingDataset):
    def __getitem__(self, index):
        sample = super().__getitem__(index)
        picture = torch.from_numpy(sample["picture"].copy()).view(3, SIDE, SIDE)
        return picture.float() / 255, sample["label"]


loader = DataLoader(
    Pictures(local=str(out), shuffle=True, batch_size=BATCH), batch_size=BATCH, num_workers=1
)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(500):
    for images, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
