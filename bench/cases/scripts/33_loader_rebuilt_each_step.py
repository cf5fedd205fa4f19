"""next(iter(loader)) in every step: workers are started, and a new epoch begins, for a single batch.

Symptom: a step takes a tenth of a second whatever the model; system time is high; workers come and go in top.
Cause: an iterator is made for each batch (a loop over steps and not over epochs), and thrown away with all it has prepared.
Truth: EPOCH START in every step: about 32.7 ms a step. (What the batch itself takes is 0.)
Remedy: keep the iterator (FIXED=1).
Run: python 33_loader_rebuilt_each_step.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 100)), bool(os.environ.get("FIXED"))


def endless(loader):
    while True:
        yield from loader


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(8192, 512), torch.randint(0, 10, (8192,))), 32, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept, start = endless(loader), time.perf_counter()
    for _ in range(STEPS):
        x, y = next(kept) if FIXED else next(iter(loader))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(f"{STEPS} steps, {1000 * (time.perf_counter() - start) / STEPS:.1f} ms a step")
