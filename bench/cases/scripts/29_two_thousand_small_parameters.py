"""An optimizer walks over two thousand small parameters one by one.

Symptom: forward and backward are short, and the step is not; on a GPU thousands of tiny kernels.
Cause: foreach=False (the default on CPUs, and of many optimizers written by hand): some operations for each parameter.
Truth: OPTIMIZER (part of compute): about 33 ms a step.
Remedy: fused=True (FIXED=1), or foreach=True.
Run: python 29_two_thousand_small_parameters.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 200)), bool(os.environ.get("FIXED"))


class Experts(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.randn(width)) for _ in range(count))
        self.shifts = nn.ParameterList(nn.Parameter(torch.zeros(width)) for _ in range(count))
        self.last = nn.Linear(width, 10)

    def forward(self, x):
        return self.last(x * torch.stack(list(self.scales)).mean(0) + torch.stack(list(self.shifts)).mean(0))


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,))), 32, shuffle=True)
model = Experts(1000, 256)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=FIXED or None)
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
