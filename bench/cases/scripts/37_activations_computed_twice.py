"""Gradient checkpointing is on though memory is plentiful: each forward pass is computed twice.

Seen in: fine-tuning recipes copied from larger models (`gradient_checkpointing=True`).
Symptom: a third slower than it could be; memory half empty.
Cause: torch.utils.checkpoint around every block.
Truth: COMPUTE: the backward pass, which computes forward passes again.
Remedy: leave it out, or a larger batch (FIXED=1).
Run: python 37_activations_computed_twice.py
"""
import os, time
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 100)), bool(os.environ.get("FIXED"))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(384, 1024), nn.GELU(), nn.Linear(1024, 384)) for _ in range(8))
        self.head = nn.Linear(384, 10)

    def forward(self, x):
        for block in self.blocks:
            x = x + (block(x) if FIXED else checkpoint(block, x, use_reentrant=False))
        return self.head(x)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(4096, 384), torch.randint(0, 10, (4096,))), 128, shuffle=True)
model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, start = 0, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += 1
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
