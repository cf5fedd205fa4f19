"""Lightning Fabric: its setup of model, optimizer and loader around a loop of one's own, on two ranks."""

import sys

import torch
from lightning.fabric import Fabric
from pictures import loader, network

fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
fabric.launch()
model = network()
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.01))
batches = fabric.setup_dataloaders(loader(f"{sys.argv[1]}/train"))
for _ in range(500):
    for images, labels in batches:
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
