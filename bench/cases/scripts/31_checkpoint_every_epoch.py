"""Every epoch ends with a checkpoint of model and optimizer, and epochs are short.

Symptom: a pause after every epoch; nobody has decided that it should be so often.
Cause: "save every epoch" was right for an epoch of an hour.
Truth: CHECKPOINT: about 60 ms after every 16 steps, about 4 ms a step on average.
Remedy: every tenth epoch (FIXED=1), or asynchronously.
Run: python 31_checkpoint_every_epoch.py            (writes 2 x 75 MB below TMPDIR)
"""
import os, tempfile, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 320)), 10 if os.environ.get("FIXED") else 1
folder = tempfile.mkdtemp()
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 1500), torch.randint(0, 10, (64,))), 4, shuffle=True)
model = nn.Sequential(nn.Linear(1500, 2000), nn.ReLU(), nn.Linear(2000, 1500), nn.ReLU(), nn.Linear(1500, 10))
optimizer = torch.optim.Adam(model.parameters(), fused=True)
start = time.perf_counter()
for epoch in range(STEPS // 16):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if (epoch + 1) % EVERY == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, f"{folder}/last.pt")
print(f"{16 * (STEPS // 16)} steps, {1000 * (time.perf_counter() - start) / (16 * (STEPS // 16)):.1f} ms a step")
