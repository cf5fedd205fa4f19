"""How many trained tensors a zoo model has: each is a gradient of its own. Builds it without memory or arithmetic."""

from __future__ import annotations

import torch

from stash.lab.zoo.registry import WorkloadSpec


def trained_tensors(spec: WorkloadSpec) -> int:
    """Parameters that get a gradient; raises UserError if a package is missing."""
    with torch.device("meta"):
        return sum(parameter.requires_grad for parameter in spec.build().parameters())
