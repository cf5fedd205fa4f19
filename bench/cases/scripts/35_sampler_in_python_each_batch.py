"""A batch sampler draws by weights in Python, for each batch: it runs in the training process, whatever the workers.

Seen in: samplers of hard examples and of imbalanced data (ufoym/imbalanced-dataset-sampler#21).
Symptom: the device waits for batches; more workers change nothing, and are idle themselves.
Cause: random.choices over all samples' weights for every batch, in the training process, which asks workers for indices.
Truth: PREP, not in __getitem__: the sampler's __iter__.
Remedy: draw with torch.multinomial for many batches at once (FIXED=1). No more workers.
Run: python 35_sampler_in_python_each_batch.py
"""
import os, random, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS, BATCH, STEPS, FIXED = 150_000, 32, int(os.environ.get("STEPS", 150)), bool(os.environ.get("FIXED"))


class Hardest:
    def __init__(self):
        self.weights = [random.random() for _ in range(ROWS)]

    def __len__(self):
        return 100_000

    def __iter__(self):
        if FIXED:
            yield from torch.multinomial(torch.tensor(self.weights), BATCH * 600, True).view(-1, BATCH).tolist()
        while True:
            yield random.choices(range(ROWS), weights=self.weights, k=BATCH)


class Rows(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, i):
        return torch.full((256,), i / ROWS), i % 10


if __name__ == "__main__":
    loader = DataLoader(Rows(), batch_sampler=Hardest(), num_workers=2)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    start = None
    for done, (x, y) in enumerate(loader):
        if done == 5:
            start = time.perf_counter()
        if done == STEPS + 5:
            break
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(f"{STEPS} steps, {1000 * (time.perf_counter() - start) / STEPS:.1f} ms a step")
