"""A stream with a shuffle buffer: before an epoch's first batch, thousands of samples are read to fill it.

Seen in: activeloopai/deeplake#1760 (90 s before each epoch's first batch), tensorflow/tensorflow#30646, huggingface/datasets#7102.
Symptom: each epoch begins with a pause; within it all is well.
Cause: __iter__ of the IterableDataset fills the buffer again each time.
Truth: EPOCH START (24 steps an epoch).
Remedy: a smaller buffer (FIXED=1), or one that is kept from epoch to epoch.
Run: python 34_shuffle_buffer_filled_each_epoch.py
"""
import itertools, json, os, random, time
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

STEPS, EPOCH, BUFFER = int(os.environ.get("STEPS", 240)), 24, 64 if os.environ.get("FIXED") else 6000
lines = [json.dumps({"x": [random.random() for _ in range(128)], "y": i % 10}) for i in range(500)]


class Stream(IterableDataset):
    def __iter__(self):
        records = (json.loads(lines[i % 500]) for i in itertools.count())
        buffer = list(itertools.islice(records, BUFFER))
        for record in itertools.islice(records, 32 * EPOCH):
            at = random.randrange(BUFFER)
            buffer[at], given = record, buffer[at]
            yield torch.tensor(given["x"]), given["y"]


loader = DataLoader(Stream(), 32)
model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
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
