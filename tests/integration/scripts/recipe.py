"""The usual recipe: mixed precision with loss scaling, batch normalisation, a one-cycle schedule of 12 steps.

The schedule refuses to be stepped more often than it was told, the scaler's first steps overflow and are skipped, and
DDP broadcasts the buffers of the normalisation before every forward. An epoch is one batch of each rank.
"""

import sys

import torch
from ddp import begin, share
from parts import ArrayFolder, network

EPOCHS = 12

model, optimizer = begin(network(norm=True, width=8), broadcast_buffers=True)
loader = share(ArrayFolder(sys.argv[1], 8), 4)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 0.1, epochs=EPOCHS, steps_per_epoch=len(loader)
)

for _ in range(EPOCHS):
    for pictures, labels in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
