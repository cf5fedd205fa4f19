"""A compiled model is compiled again in nearly every step: sequences of unlike lengths, and a rate passed as a number.

Reported as "torch.compile is slower than eager" (PyTorch #112090 and many more): each new shape, and each new float that
the function depends on, is another graph. Without a C++ compiler the backend only traces, which takes as long a part.

    python 42_compiled_again_each_step.py            prints its own time a step
    FIXED=1 python 42_compiled_again_each_step.py    lengths are padded to a few, the rate is a tensor
"""

import os
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FIXED = os.environ.get("FIXED") == "1"
EPOCHS = int(os.environ.get("EPOCHS", "100"))
torch._dynamo.config.recompile_limit = 10_000
torch._dynamo.config.accumulated_recompile_limit = 100_000


class Sentences(Dataset):
    def __init__(self):
        order = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(8, 120, (4000,), generator=order).tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.ones(self.lengths[i], 32), 0


def pad(samples):
    longest = max(len(words) for words, _ in samples)
    longest = -(-longest // 40) * 40 if FIXED else longest
    batch = torch.zeros(len(samples), longest, 32)
    for row, (words, _) in zip(batch, samples, strict=True):
        row[: len(words)] = words
    return batch, torch.tensor([label for _, label in samples])


model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)])


@torch.compile(backend="aot_eager", dynamic=False)
def loss_of(words, labels, rate):
    return F.cross_entropy(model(words).mean(1), labels) * rate


if __name__ == "__main__":
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps, began = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        for words, labels in DataLoader(Sentences(), batch_size=4, collate_fn=pad, shuffle=True):
            rate = torch.tensor(0.5) if FIXED else 1 / (1 + steps)
            optimizer.zero_grad()
            loss_of(words, labels, rate).backward()
            optimizer.step()
            steps += 1
            if steps == 20:
                began = time.perf_counter()
            if steps % 200 == 0:
                print(f"{(time.perf_counter() - began) / (steps - 20) * 1e3:.2f} ms a step", flush=True)
        if steps > 1000:
            break
