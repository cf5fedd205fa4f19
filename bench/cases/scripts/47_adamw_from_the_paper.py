"""AdamW written down from the paper: a Python loop over 260 small parameters, some twenty operations for each.

Seen in: pytorch/pytorch#3929 (100 ms where 1 ms would do, many small parameters), facebookresearch/schedule_free#10 (85 -> 65 ms with foreach),
sail-sg/Adan#1, kozistr/pytorch_optimizer#114 (foreach asked for).
Symptom: after backward nothing seems to happen for a while; the class is no torch.optim.Optimizer, so that no tool has a name for it.
Cause: 5000 operations on tensors of a few thousand numbers, a new tensor for each, and two comparisons read back per parameter.
Truth: the OPTIMIZER (the script's own code, after backward): about 14 ms of 23 a step.
Remedy: torch.optim.AdamW(fused=True) (FIXED=1), or torch._foreach_ functions over lists.
Run: python 47_adamw_from_the_paper.py
"""
import os, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class PaperAdamW:
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, clip=1.0):
        self.params = list(params)
        self.lr, self.betas, self.eps, self.wd, self.clip, self.t = lr, betas, eps, weight_decay, clip, 0
        self.m, self.v = ([torch.zeros_like(p) for p in self.params] for _ in "mv")

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        b1, b2 = self.betas
        for i, p in enumerate(self.params):
            g = p.grad
            if g is None or torch.isnan(g).any():
                continue
            norm = g.norm()
            if norm > self.clip:
                g = g * (self.clip / norm)
            self.m[i] = b1 * self.m[i] + (1 - b1) * g
            self.v[i] = b2 * self.v[i] + (1 - b2) * g * g
            m_hat = self.m[i] / (1 - b1 ** self.t)
            v_hat = self.v[i] / (1 - b2 ** self.t)
            p.data = p.data - self.lr * (m_hat / (torch.sqrt(v_hat) + self.eps) + self.wd * p.data)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(d), nn.Linear(d, d)

    def forward(self, x):
        return x + torch.tanh(self.mix(self.norm(x)))


class Deep(nn.Module):
    def __init__(self, d=64, depth=64, out=5):
        super().__init__()
        self.enter, self.blocks, self.leave = nn.Linear(24, d), nn.ModuleList(Block(d) for _ in range(depth)), nn.Linear(d, out)

    def forward(self, x):
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return self.leave(x)


torch.manual_seed(0)
STEPS = int(os.environ.get("STEPS", 3000))
model = Deep()
optim = torch.optim.AdamW(model.parameters(), fused=True) if os.environ.get("FIXED") else PaperAdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(8000, 24), torch.randn(8000, 5)), batch_size=16, shuffle=True, drop_last=True)
step, start = 0, time.perf_counter()
while step < STEPS:
    for features, wanted in loader:
        optim.zero_grad()
        nn.functional.huber_loss(model(features), wanted).backward()
        optim.step()
        step += 1
        if step >= STEPS:
            break
print(f"{step} steps, {1000 * (time.perf_counter() - start) / step:.1f} ms a step")
