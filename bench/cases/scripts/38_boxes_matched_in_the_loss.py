"""The loss matches boxes to targets in Python loops, picture by picture, box by box.

Seen in: losses of detectors that were written from papers, with loops over boxes.
Symptom: GPU at 20 %, CPU at 100 %; the network is small in comparison.
Cause: a loop over all targets in the loss function, with comparisons read one by one (`.item()`).
Truth: COMPUTE (forward) by the step's parts; the lines of match() are the script's own, on the training thread, within the loss.
Remedy: match all at once with tensors (FIXED=1).
Run: python 38_boxes_matched_in_the_loss.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS, FIXED = int(os.environ.get("STEPS", 120)), bool(os.environ.get("FIXED"))


class MatchLoss(nn.Module):
    def match(self, anchors, targets):
        if FIXED:
            return (anchors[None] - targets[..., None, :]).abs().sum(-1).argmin(-1)
        found = torch.zeros(targets.shape[:2], dtype=torch.long)
        for b in range(targets.shape[0]):
            for t in range(targets.shape[1]):
                best = float("inf")
                for k in range(0, len(anchors), 4):
                    apart = (anchors[k : k + 4] - targets[b, t]).abs().sum(1)
                    if apart.min().item() < best:
                        best, found[b, t] = apart.min().item(), k + apart.argmin()
        return found

    def forward(self, scores, anchors, targets):
        return nn.functional.cross_entropy(scores.flatten(0, 1), self.match(anchors, targets).flatten())


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(4096, 256), torch.rand(4096, 6, 4)), 16, shuffle=True)
anchors = torch.rand(32, 4)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 6 * 32))
optimizer, criterion = torch.optim.SGD(model.parameters(), lr=0.01), MatchLoss()
done, start = 0, time.perf_counter()
while done < STEPS:
    for x, boxes in loader:
        optimizer.zero_grad()
        loss = criterion(model(x).view(-1, 6, 32), anchors, boxes)
        loss.backward()
        optimizer.step()
        done += 1
        if done == STEPS:
            break
print(f"{done} steps, {1000 * (time.perf_counter() - start) / done:.1f} ms a step")
