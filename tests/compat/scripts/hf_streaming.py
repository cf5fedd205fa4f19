"""HF datasets: an image folder that is streamed, shuffled in a buffer, through a DataLoader with one worker."""

import sys

import torch
from datasets import load_dataset
from pictures import BATCH, SIDE, network
from torch.utils.data import DataLoader
from torchvision import transforms

prepare = transforms.Compose([transforms.Resize((SIDE, SIDE)), transforms.ToTensor()])


def ready(example):
    return {"image": prepare(example["image"].convert("RGB")), "label": example["label"]}


stream = load_dataset("imagefolder", data_dir=f"{sys.argv[1]}/train", split="train", streaming=True)
stream = stream.shuffle(seed=0, buffer_size=64).map(ready)
loader = DataLoader(stream.with_format("torch"), batch_size=BATCH, num_workers=1, drop_last=True)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(500):
    stream.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
        optimizer.step()
