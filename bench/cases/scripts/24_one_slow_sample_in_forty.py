"""One sample in forty takes a hundred times as long as the others, and batches are handed out in order.

Symptom: most steps are fast, some wait; utilisation is a comb; more workers help less than they should.
Cause: the batch with the slow sample is waited for, while later ones lie ready.
Truth: PREP, in one step of ten: about 7 ms a step on average.
Remedy: in_order=False (torch >= 2.6; FIXED=1), or make those samples cheaper.
Run: python 24_one_slow_sample_in_forty.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH, STEPS, FIXED = 4, int(os.environ.get("STEPS", 400)), bool(os.environ.get("FIXED"))


class Clips(Dataset):
    def __len__(self):
        return 10 ** 6

    def __getitem__(self, i):
        time.sleep(0.12 if i % 40 == 7 else 0.0012)
        return torch.full((512,), i % 7 / 7), i % 10


if __name__ == "__main__":
    loader = DataLoader(Clips(), BATCH, num_workers=2, in_order=not FIXED)
    model = nn.Sequential(nn.Linear(512, 1500), nn.ReLU(), nn.Linear(1500, 1500), nn.ReLU(), nn.Linear(1500, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for done, (x, y) in enumerate(loader):
        if done == 5:
            start = time.perf_counter()
        if done == STEPS + 5:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(f"{STEPS} steps, {1000 * (time.perf_counter() - start) / STEPS:.1f} ms a step")
