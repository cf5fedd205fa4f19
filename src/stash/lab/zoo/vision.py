"""Image classifiers: torchvision's models.

Knows how to build them with random weights for 1000 classes and (batch, 3, H, W) inputs. Does not know
data, losses or training.
"""

from __future__ import annotations

from torch import nn

from stash.core.imports import prepare_torchvision

prepare_torchvision()

from torchvision import models  # noqa: E402


def torchvision_model(name: str) -> nn.Module:
    """Any classifier of torchvision by its name there."""
    model: nn.Module = models.get_model(name, weights=None)
    return model
