"""Each parameter's gradient norm is read with .item() and logged after every step.

Symptom: the step is short by itself, and the loop is not; on a GPU utilisation falls with the number of layers.
Cause: hundreds of small operations and .item() calls a step, each of which waits for the device.
Truth: the script's own LOOP, between optimizer.step() and the next batch: about 13.1 ms a step.
Remedy: every 50 steps, or all at once with torch.nn.utils.get_total_norm (FIXED=1: every 50).
Run: python 25_norms_read_one_by_one.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 400)), 50 if os.environ.get("FIXED") else 1
torch.set_num_threads(1)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(4096, 64), torch.randint(0, 10, (4096,))), 32, shuffle=True)
blocks = [layer for _ in range(40) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.Tanh())]
model = nn.Sequential(*blocks, nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, foreach=True)
done, history, start = 0, {}, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        done += 1
        if done % EVERY == 0:
            for name, p in model.named_parameters():
                history[f"grad/{name}"] = p.grad.double().norm().item()
                history[f"weight/{name}"] = p.detach().double().abs().quantile(0.99).item()
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
