"""The operators of published models: FLOPs and bytes by shape of one step, counted on tensors without memory.

Runs each model's forward and backward pass once on PyTorch's meta device, so that no GPU is needed and nothing is
computed. Knows models of torchvision alone: how the others in the published tables were built is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from stash.lab.zoo.vision import torchvision_model


class Calls(NamedTuple):
    """What one operator did with inputs of one shape."""

    operator: str
    shapes: str
    dtype: str
    calls: int
    flops: float | None
    bytes: float | None


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        read = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        written = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        if not any(one is other for one in written for other in read) and not function.is_view:
            packet = function._overloadpacket
            flops = flop_registry[packet](*args, **(kwargs or {}), out_val=out) if packet in flop_registry else 0
            entry = self.found[str(packet), " ".join("x".join(map(str, each.shape)) for each in read)]
            entry[0] += 1
            entry[1] += flops
            entry[2] += sum(each.numel() * each.element_size() for each in (*read, *written))
        return out


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {
    "resnet50": (lambda: torchvision_model("resnet50"), 224),
    "resnet152": (lambda: torchvision_model("resnet152"), 224),
    "alexnet": (lambda: torchvision_model("alexnet"), 224),
    "vgg16": (lambda: torchvision_model("vgg16"), 224),
    "inceptionv3": (lambda: torchvision_model("inception_v3"), 299),
    "resnet18": (lambda: torchvision_model("resnet18"), 32),
}
"""By key of their names, and the side of their images; Gavel trains ResNet-18 on CIFAR-10."""


@lru_cache(maxsize=64)
def operators(model: str, batch: int) -> tuple[Calls, ...]:
    """Of one step of a model at a batch, its optimizer left out."""
    make, side = MODELS[model]
    with torch.device("meta"):
        net = make()
        images = torch.empty(batch, 3, side, side)
        with _Counter() as counter:
            out = net(images)
            out = out if isinstance(out, torch.Tensor) else out[0]
            out.sum().backward()
    return tuple(
        Calls(name, shapes, "float32", int(calls), flops or None, size)
        for (name, shapes), (calls, flops, size) in sorted(counter.found.items())
    )
