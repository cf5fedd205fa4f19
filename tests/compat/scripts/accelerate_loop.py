"""accelerate: the loop of its documentation, with a checkpoint after every epoch."""

import sys

import torch
from accelerate import Accelerator
from pictures import loader, network

data, out = sys.argv[1], sys.argv[2]
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
model, optimizer, train, scheduler = accelerator.prepare(
    model, optimizer, loader(f"{data}/train"), scheduler
)
for _ in range(500):
    for images, labels in train:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    accelerator.save_state(f"{out}/state")
