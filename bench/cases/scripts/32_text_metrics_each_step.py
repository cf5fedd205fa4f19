"""Word errors of the batch are computed in Python after every step, from tensors copied to the host.

Symptom: one core busy, the device idle between steps; a larger device changes nothing.
Cause: an edit distance in pure Python (jiwer, BLEU, ROUGE are no better) on every training batch.
Truth: the script's own LOOP after optimizer.step(): about 2.9 ms a step.
Remedy: every 50 steps (FIXED=1), or on validation only.
Run: python 32_text_metrics_each_step.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, EVERY = int(os.environ.get("STEPS", 250)), 50 if os.environ.get("FIXED") else 1


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randint(0, 500, (4096, 33))), 16, shuffle=True)
model = nn.Sequential(nn.Embedding(500, 256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 500))
optimizer = torch.optim.Adam(model.parameters())
done, errors, start = 0, [], time.perf_counter()
while done < STEPS:
    for (x,) in loader:
        optimizer.zero_grad()
        logits = model(x[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten()).backward()
        optimizer.step()
        done += 1
        if done % EVERY == 0:
            guess, meant = logits.argmax(-1).cpu().tolist(), x[:, 1:].cpu().tolist()
            errors.append(sum(map(edit_distance, guess, meant)) / x.numel())
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
