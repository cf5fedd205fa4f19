"""A step's memory at one batch from its peak at another, against tensors that are counted without being computed.

Peaks of real GPUs cannot be had without one. What the estimate takes for granted can: how many bytes parameters,
gradients and the optimizer's state are, and that all the rest grows with the batch. Steps run on fake tensors, and
PyTorch's own tracker (``torch.distributed._tools.mem_tracker``) counts what lives at once. Split: the peak at one
batch is given, peaks at all others are predicted; nothing is fitted. What CUDA's allocator, cuDNN's workspaces and
NCCL's buffers add is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from bench.machine import arguments
from bench.predict.errors import Prediction, evidence
from bench.predict.published import DRAWS
from stash.lab.zoo.vision import torchvision_model
from stash.predict.memory import ModelState, constant_bytes, footprint

GIVEN, ASKED = 32, (8, 64, 256)
"""Batches."""
MODELS = ("alexnet", "squeezenet1_0", "mobilenet_v2", "resnet18", "resnet50", "vgg11")


class Counted(NamedTuple):
    """Bytes of one step."""

    parameters: int
    gradients: int
    optimizer: int
    kept: int
    """By autograd, from the forward pass for the backward pass, parameters not counted."""
    peak: int


def counted(
    make: Callable[[], torch.nn.Module], sample: tuple[int, ...], batch: int, kept_gradients: bool = False
) -> Counted:
    """The second step of a model on ``batch`` samples of this shape, with SGD and momentum."""
    with FakeTensorMode():
        net, images = make(), torch.empty(batch, *sample)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        _step(net, images, optimizer, kept_gradients)
        tracker = MemTracker()
        tracker.track_external(net, images, optimizer)
        with tracker:
            kept = _step(net, images, optimizer, kept_gradients)
        every = list(net.parameters())
        (device,) = tracker.get_tracker_snapshot("peak").values()
        return Counted(
            parameters=sum(map(_bytes, every)),
            gradients=sum(_bytes(each.grad) for each in every if each.grad is not None),
            optimizer=sum(_bytes(state["momentum_buffer"]) for state in optimizer.state.values()),
            kept=kept,
            peak=int(device["Total"]),
        )


def _step(net: torch.nn.Module, images: torch.Tensor, optimizer: torch.optim.Optimizer, kept_gradients: bool) -> int:
    """One step; bytes that autograd kept of its forward pass."""
    own = {each.untyped_storage()._cdata for each in net.parameters()}
    found: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage.nbytes()
        return tensor

    optimizer.zero_grad(set_to_none=not kept_gradients)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = net(images).sum()
    loss.backward()
    optimizer.step()
    return sum(found.values())


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def predictions() -> Iterator[Prediction]:
    """Each model at each batch that is asked about, its gradients freed after each step or kept."""
    for kept in (False, True):
        for name in MODELS:
            yield from _of_model(name, kept)


def _of_model(name: str, kept_gradients: bool) -> Iterator[Prediction]:
    def at(batch: int) -> Counted:
        return counted(lambda: torchvision_model(name), (3, 224, 224), batch, kept_gradients)

    given = at(GIVEN)
    constant = constant_bytes(ModelState(given.parameters, given.optimizer, 0.0), buckets=False)
    line = footprint(given.peak, GIVEN, constant, constant)
    assert line is not None, "a peak holds more than what is constant"
    for batch in ASKED:
        yield Prediction(
            source="gradients kept" if kept_gradients else "gradients freed",
            name=f"{name}, batch {batch}",
            measured=at(batch).peak,
            predicted=np.full(DRAWS.count, line.at(batch)),
            baselines={"in proportion to the batch": given.peak * batch / GIVEN},
        )


def section() -> str:
    asked = ", ".join(map(str, ASKED))
    split = (
        f"Peaks of a step with SGD and momentum at batches of {asked}, each from the peak at {GIVEN}: of tensors "
        "that are counted and not computed, on one device, without an interval. *Split*: nothing is fitted."
    )
    return evidence("A step's memory", split, list(predictions()))


if __name__ == "__main__":
    arguments(__doc__)
    print(section())
