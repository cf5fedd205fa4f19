"""Forecasting with soft-DTW (DILATE): the loss's forward was vectorised, its backward still is three nested loops.

Seen in: vincent-leguen/DILATE#10 ("pure PyTorch implementation", the double loops of the dynamic programming),
mblondel/soft-dtw#7 ("speed is a major bottleneck in training"), Sleepwalking/pytorch-softdtw#8 (the @jit removed from
compute_softdtw_backward to get at the matrix), isaac-sim/IsaacLab#6040 (numba dropped, anti-diagonals instead).
Symptom: loss.backward() takes ten times as long as forward although the network is tiny.
Cause: numba would not install, so compute_softdtw_backward runs as plain Python over batch x horizon x horizon cells.
Planted: some 25 thousand cells a step in a custom autograd Function's backward, 70 to 80 % of a step.
Remedy: the same recursion by anti-diagonals for the whole batch at once (FIXED=1), or numba / CUDA.
Run: python 50_backward_pass_in_python.py
"""
import math
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON, BATCH = 64, 32, 24
VECTORISED = bool(os.environ.get("FIXED"))


def diagonals(n, m):
    for k in range(2, n + m + 1):
        i = np.arange(max(1, k - m), min(n, k - 1) + 1)
        yield i, k - i


def compute_softdtw(D, gamma):
    B, N, M = D.shape
    R = np.full((B, N + 2, M + 2), np.inf)
    R[:, 0, 0] = 0
    for i, j in diagonals(N, M):
        r = np.stack([R[:, i - 1, j - 1], R[:, i - 1, j], R[:, i, j - 1]]) / -gamma
        top = r.max(0)
        R[:, i, j] = D[:, i - 1, j - 1] - gamma * (np.log(np.exp(r - top).sum(0)) + top)
    return R


def frame(D, R):
    """Distances and costs with the border the recursion needs."""
    B, N, M = D.shape
    wide = np.zeros((B, N + 2, M + 2))
    wide[:, 1:N + 1, 1:M + 1] = D
    E = np.zeros((B, N + 2, M + 2))
    E[:, -1, -1] = 1
    R = R.copy()
    R[:, :, -1] = -np.inf
    R[:, -1, :] = -np.inf
    R[:, -1, -1] = R[:, -2, -2]
    return wide, E, R


def compute_softdtw_backward(D_, R_, gamma):
    B, N, M = D_.shape
    D, E, R = frame(D_, R_)
    for k in range(B):
        for j in range(M, 0, -1):
            for i in range(N, 0, -1):
                a = math.exp((R[k, i + 1, j] - R[k, i, j] - D[k, i + 1, j]) / gamma)
                b = math.exp((R[k, i, j + 1] - R[k, i, j] - D[k, i, j + 1]) / gamma)
                c = math.exp((R[k, i + 1, j + 1] - R[k, i, j] - D[k, i + 1, j + 1]) / gamma)
                E[k, i, j] = E[k, i + 1, j] * a + E[k, i, j + 1] * b + E[k, i + 1, j + 1] * c
    return E[:, 1:N + 1, 1:M + 1]


def compute_softdtw_backward_diagonals(D_, R_, gamma):
    B, N, M = D_.shape
    D, E, R = frame(D_, R_)
    for i, j in reversed(list(diagonals(N, M))):
        here = R[:, i, j]
        a = np.exp((R[:, i + 1, j] - here - D[:, i + 1, j]) / gamma)
        b = np.exp((R[:, i, j + 1] - here - D[:, i, j + 1]) / gamma)
        c = np.exp((R[:, i + 1, j + 1] - here - D[:, i + 1, j + 1]) / gamma)
        E[:, i, j] = E[:, i + 1, j] * a + E[:, i, j + 1] * b + E[:, i + 1, j + 1] * c
    return E[:, 1:N + 1, 1:M + 1]


class SoftDTWBatch(torch.autograd.Function):
    @staticmethod
    def forward(ctx, D, gamma):
        R = compute_softdtw(D.detach().cpu().numpy().astype(np.float64), gamma)
        ctx.save_for_backward(D, torch.from_numpy(R))
        ctx.gamma = gamma
        return torch.from_numpy(R[:, -2, -2].copy()).to(D.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        D, R = ctx.saved_tensors
        distances, costs = D.detach().cpu().numpy().astype(np.float64), R.numpy()
        if VECTORISED:
            E = compute_softdtw_backward_diagonals(distances, costs, ctx.gamma)
        else:
            E = compute_softdtw_backward(distances, costs, ctx.gamma)
        return grad_output.view(-1, 1, 1) * torch.from_numpy(E.copy()).to(D.dtype), None


def dilate_loss(output, target, alpha=0.8, gamma=0.1):
    D = (output[:, :, None] - target[:, None, :]).square()
    shape = SoftDTWBatch.apply(D, gamma).mean() / HORIZON
    return alpha * shape + (1 - alpha) * nn.functional.mse_loss(output, target)


class Steps(Dataset):
    """Synthetic: two peaks and a step whose place depends on the peaks, as in the paper."""

    def __init__(self, n=3000, seed=0):
        rng = np.random.default_rng(seed)
        series = 0.1 * rng.standard_normal((n, HISTORY + HORIZON), dtype=np.float32)
        first = rng.integers(5, HISTORY // 2, n)
        second = rng.integers(HISTORY // 2, HISTORY - 5, n)
        height = rng.uniform(0.3, 1.0, (n, 2)).astype(np.float32)
        rows = np.arange(n)
        series[rows, first] += height[:, 0]
        series[rows, second] += height[:, 1]
        begin = HISTORY + np.minimum((second - first) // 2, HORIZON - 2)
        series += (np.arange(HISTORY + HORIZON)[None] >= begin[:, None]) * (height[:, 1:] - height[:, :1])
        self.series = torch.from_numpy(series)

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return self.series[i, :HISTORY, None], self.series[i, HISTORY:]


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.encoder = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 256), nn.ReLU(), nn.Linear(256, HORIZON))

    def forward(self, history):
        _, h = self.encoder(history)
        return self.head(h[-1])


def run(net, loader, optimizer, total):
    done, start = 0, time.perf_counter()
    for epoch in range(10_000):
        losses = []
        for history, future in loader:
            loss = dilate_loss(net(history), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            done += 1
            if done >= total:
                return done, time.perf_counter() - start
        print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    net = Forecaster()
    loader = DataLoader(Steps(), BATCH, shuffle=True, drop_last=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    steps, seconds = run(net, loader, optimizer, int(os.environ.get("STEPS", 320)))
    print(f"steps {steps}, seconds a step {seconds / steps:.4f}")
