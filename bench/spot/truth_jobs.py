"""Jobs of a known size whose gradients cost next to nothing: what is emulated around them is all that takes time."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

import stash.spot

TENSORS = 4
"""Equally large, so that one, two or four servers share them evenly."""


class Weights(nn.Module):
    """As many bytes as are asked for."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList(torch.zeros(size // 4 // TENSORS) for _ in range(TENSORS))


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Every weight's gradient is the batch's mean."""
    return batch.mean() * torch.stack([part.sum() for part in model.parameters()]).sum()


def _job(size: int) -> stash.spot.Job:
    return stash.spot.Job(
        partial(Weights, size), _loss, partial(torch.optim.SGD, lr=1e-6), partial(torch.ones, 4096, 1), batch=8
    )


mb1, mb2, mb4 = _job(1_000_000), _job(2_000_000), _job(4_000_000)
