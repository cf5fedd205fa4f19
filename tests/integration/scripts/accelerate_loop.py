"""A loop under Hugging Face Accelerate, which fetches batches one ahead."""

import argparse

import torch
from accelerate import Accelerator
from parts import ArrayFolder, network
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--accumulate", type=int, default=1)
args = parser.parse_args()

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulate)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(ArrayFolder(args.data), 16, shuffle=True)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

for _ in range(1000):
    for pictures, labels in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        accelerator.gather(loss.detach())
