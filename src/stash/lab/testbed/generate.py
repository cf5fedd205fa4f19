"""The emulation of a zoo model on a GPU, from its operations and bytes against the GPU's peak rates.

A roofline per layer (Williams, Waterman, Patterson 2009): the longer of computing and moving bytes. The model
is only traced, on PyTorch's meta device: no memory, no arithmetic. Peak rates are given, not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate
from torch.utils.flop_counter import FlopCounterMode

from stash.core.errors import UserError
from stash.lab.testbed.emulation import Emulation, LayerSpec
from stash.lab.zoo.feed import LOSSES, Synthetic
from stash.lab.zoo.registry import workload

BACKWARD = 2.0
"""A layer's backward pass is two products of its forward's size: by its input and by its weight."""

FLOAT32 = 4
"""Bytes of a value as the model is traced."""


@dataclass
class _Cost:
    """One layer's forward pass."""

    name: str
    parameter_bytes: int
    flops: float = 0.0
    moved: float = 0.0

    def add(self, parameter_bytes: int, flops: float, moved: float) -> None:
        """Count further work of the layer."""
        self.parameter_bytes += parameter_bytes
        self.flops += flops
        self.moved += moved


def emulate_workload(
    name: str,
    flops_per_second: float,
    memory_bytes_per_second: float,
    batch: int | None = None,
    efficiency: float = 1.0,
    value_bytes: int = 4,
) -> Emulation:
    """A zoo workload at ``batch`` samples on a device with these peak rates, of which ``efficiency`` is reached.

    ``value_bytes`` is the width of what the passes read and write: 2 under autocast, which leaves gradients and
    the optimizer's update at 4. Raises UserError for an unknown workload or rates that are not positive.
    """
    if min(flops_per_second, memory_bytes_per_second) <= 0 or not 0 < efficiency <= 1:
        raise UserError("a device needs peak rates above 0 and an efficiency above 0, up to 1")
    layers = []
    spec = workload(name)
    one = default_collate([Synthetic(spec, 1)[0]])
    inputs = [tensor.to("meta").expand(batch or spec.batch, *tensor.shape[1:]) for tensor in one]
    with torch.device("meta"):
        model = spec.build()
    counter = FlopCounterMode(display=False)
    book = _Book(counter)
    for path, module in model.named_modules():
        if not any(module.children()):
            module.register_forward_hook(book.hook(path, module), with_kwargs=True)
    with counter:
        LOSSES[spec.kind](model, inputs)
    for cost in book.list_costs(model):
        moved = cost.moved * value_bytes / FLOAT32
        forward = max(cost.flops / flops_per_second, moved / memory_bytes_per_second) / efficiency
        layers.append(
            LayerSpec(
                name=cost.name,
                bytes=cost.parameter_bytes,
                forward_seconds=forward,
                backward_seconds=BACKWARD * forward,
            )
        )
    moved = 3 * sum(layer.bytes for layer in layers)  # weights read and written, gradients read
    return Emulation(
        name=name,
        layers=tuple(layers),
        optimizer_seconds=moved / memory_bytes_per_second / efficiency,
    )


class _Book:
    """Keeps the costs while the hooks of the leaf modules fire."""

    def __init__(self, counter: FlopCounterMode) -> None:
        self._counter = counter
        self._flops = 0.0
        self._costs: list[_Cost] = []
        self._seen: set[int] = set()

    def hook(self, path: str, module: nn.Module) -> Any:
        """A forward hook that books what was computed since the last one fired."""

        def book(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            own = self._claim(list(module.parameters(recurse=False)))
            if own or not self._costs:
                self._costs.append(_Cost(path, own))
            total = float(self._counter.get_total_flops())
            moved = own + _bytes_of((args, kwargs, output))
            self._costs[-1].add(0, total - self._flops, moved)
            self._flops = total

        return book

    def list_costs(self, model: nn.Module) -> list[_Cost]:
        """All layers; parameters that belong to no leaf module go with the first, ready last in the backward pass."""
        rest = self._claim(list(model.parameters()))
        if self._costs:
            self._costs[0].add(rest, 0.0, 0.0)
            self._costs[-1].add(0, float(self._counter.get_total_flops()) - self._flops, 0.0)
        return self._costs

    def _claim(self, parameters: list[nn.Parameter]) -> int:
        """Bytes of float32 gradients of the parameters not claimed before: tied weights count once."""
        new = [p for p in parameters if p.requires_grad and id(p) not in self._seen]
        self._seen.update(map(id, new))
        return sum(FLOAT32 * p.numel() for p in new)


def _bytes_of(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return _bytes_of(list(value.values()))
    return sum(map(_bytes_of, value)) if isinstance(value, list | tuple) else 0
