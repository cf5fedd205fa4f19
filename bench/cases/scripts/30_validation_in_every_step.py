"""A few validation batches are evaluated in every step, before the optimizer steps.

Symptom: training is several times slower than the model's size suggests; the profiler shows the same operators everywhere.
Cause: "loss on validation" is plotted step by step.
Truth: EVALUATION: about 10.6 ms a step, inside the step; forward passes that no gradient uses. Must not be compute.
Remedy: every 50 steps (FIXED=1).
Run: python 30_validation_in_every_step.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 250)), 50 if os.environ.get("FIXED") else 1
torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,))), 32, shuffle=True)
val = DataLoader(TensorDataset(torch.randn(512, 512), torch.randint(0, 10, (512,))), 128)
model = nn.Sequential(nn.Linear(512, 1200), nn.ReLU(), nn.Linear(1200, 1200), nn.ReLU(), nn.Linear(1200, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, curve, start = 0, [], time.perf_counter()
while done < STEPS:
    for x, y in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if done % EVERY == 0:
            model.eval()
            with torch.no_grad():
                losses = [nn.functional.cross_entropy(model(a), b).item() for a, b in val]
            curve.append(sum(losses) / len(losses))
            model.train()
        optimizer.step()
        done += 1
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
