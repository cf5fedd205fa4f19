"""Millions of small objects live for long, and each step makes some more: Python's collector looks at them all.

Symptom: a step in every few takes many times as long as the others, at no regular interval; no profiler names a function.
Cause: a replay buffer of lists and dicts; each full collection walks over the whole heap.
Truth: COLLECTOR: about 5.5 ms a step on average, in single steps.
Remedy: gc.freeze() after building, and collect every 200 steps (FIXED=1).
Run: python 27_collector_looks_at_everything.py
"""
import collections, gc, os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 400)), bool(os.environ.get("FIXED"))
torch.manual_seed(0)
vocabulary = [{"id": i, "near": [i - 1, i + 1]} for i in range(300_000)]
buffer = collections.deque(maxlen=40)
loader = DataLoader(TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,))), 32, shuffle=True)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if FIXED:
    gc.collect()
    gc.freeze()
    gc.disable()
done, start = 0, time.perf_counter()
while done < STEPS:
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        buffer.append([[done, k] for k in range(8000)])
        done += 1
        if FIXED and done % 200 == 0:
            gc.collect()
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
