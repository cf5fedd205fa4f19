"""Validation without no_grad: its passes build graphs that nobody uses, and nobody calls eval().

Seen in: jostmey/NakedAttention#1 (graphs kept of losses that are only added up).
Symptom: validation takes as long as training, and much memory.
Cause: no torch.no_grad() around a validation of 60 batches, each 30 steps.
Truth: EVALUATION.
Remedy: no_grad, and less often (FIXED=1).
Run: python 39_validation_with_gradients.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 240)), bool(os.environ.get("FIXED"))
torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(30 * 32, 512), torch.randint(0, 10, (30 * 32,))), 32, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(60 * 32, 512), torch.randint(0, 10, (60 * 32,))), 32)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, epoch, history, start = 0, 0, [], time.perf_counter()
while done < STEPS:
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += 1
    epoch += 1
    if not FIXED or epoch % 8 == 0:
        total = 0
        for x, y in valid:
            total = total + nn.functional.cross_entropy(model(x), y)
        history.append(total.item() / len(valid))
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
