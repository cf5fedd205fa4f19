"""Image classifiers: torchvision's models, and a ResNet family with its features switched off one by one.

Knows how to build them with random weights for 1000 classes and (batch, 3, H, W) inputs. Does not know
data, losses or training.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from stash.core.imports import prepare_torchvision

prepare_torchvision()

from torchvision import models  # noqa: E402
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet  # noqa: E402

BLOCKS: dict[int, tuple[int, int, int, int]] = {
    10: (1, 1, 1, 1),
    12: (2, 1, 1, 1),
    16: (2, 2, 2, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Residual blocks per stage. 18 and above: He et al. 2016, table 1; below: pytorchcv (imgclsmob)."""


def torchvision_model(name: str) -> nn.Module:
    """Any classifier of torchvision by its name there."""
    model: nn.Module = models.get_model(name, weights=None)
    return model


def resnet(depth: int, residual: bool = True, batch_norm: bool = True) -> nn.Module:
    """A ResNet of ``depth`` layers, optionally without its residual links or its batch normalisation.

    Without links the shortcut projections go too. Without batch norm the last convolution of every
    branch starts at zero (as in Fixup, Zhang et al. 2019, arXiv 1901.09321), or the variance would
    double in each block and the loss of deep models overflow; the cost of a step is unchanged.
    """
    bottleneck = depth >= 50
    if residual:
        block = Bottleneck if bottleneck else BasicBlock
    else:
        block = PlainBottleneck if bottleneck else PlainBasicBlock
    norm: Any = None if batch_norm else nn.Identity
    model: nn.Module = ResNet(block, list(BLOCKS[depth]), norm_layer=norm)
    if residual and not batch_norm:
        for module in model.modules():
            if isinstance(module, (BasicBlock, Bottleneck)):
                nn.init.zeros_((module.conv3 if bottleneck else module.conv2).weight)
    return model


class _WithoutProjection:
    """A block made without the projection of its shortcut, since it has no shortcut."""

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Any = None,
        *rest: Any,
        **named: Any,
    ) -> None:
        super().__init__(inplanes, planes, stride, None, *rest, **named)  # type: ignore[call-arg]


class PlainBasicBlock(_WithoutProjection, BasicBlock):  # type: ignore[misc]
    """torchvision's basic block without its residual link."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        out: Tensor = self.relu(self.bn2(self.conv2(x)))
        return out


class PlainBottleneck(_WithoutProjection, Bottleneck):  # type: ignore[misc]
    """torchvision's bottleneck block without its residual link."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        out: Tensor = self.relu(self.bn3(self.conv3(x)))
        return out
