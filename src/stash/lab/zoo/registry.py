"""Every workload of the zoo as a frozen specification, found by name: what it is, what it needs, how large it is.

Reads ``workloads.csv``. Models are built by ``models``, which is imported (with torch) only when one is.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from stash.core.errors import UserError
from stash.core.imports import missing_package, require_torchvision
from stash.core.units import find_nearest

if TYPE_CHECKING:
    from torch import nn

SEQUENCE_LENGTH, LONGEST_SEQUENCE = 384, 512
"""Tokens of a sample of text, as in SQuAD, and those that BERT's position embedding has room for."""
ON_DISK = ("images", "text")
"""Kinds of data of which `stash lab dataset make` makes files; others are made in memory."""


@dataclass(frozen=True)
class WorkloadSpec:
    """One model with its loss, optimizer and kind of data; weights are random."""

    name: str
    group: str
    """``paper`` (the grid of ICDCS 2023), ``depth`` (its ResNets and VGGs of other depths) or ``more``."""
    kind: str
    """Kind of data it reads: ``images``, ``text``, ``audio`` or ``clicks``."""
    parameters: int
    """Trainable parameters at the default input size; gradients are four bytes each."""
    forward_flops: float
    """Of one sample's forward pass, counted on PyTorch's meta device (``lab/testbed/generate.py``)."""
    moved_bytes: float
    """Of float32, read and written by one sample's forward pass; without weights, which are read once a batch."""
    batch: int
    """Default samples per device and step."""
    lr: float
    smallest_image: int
    """Pixels per side below which its feature maps vanish; images only."""
    about: str
    source: str

    @property
    def gradient_bytes(self) -> int:
        """Bytes of one float32 gradient of the whole model: what every step must all-reduce."""
        return 4 * self.parameters

    def require_files(self) -> None:
        """Raise UserError where no data set on disk holds what it reads."""
        if self.kind not in ON_DISK:
            raise UserError(f"{self.name} trains on samples in memory only; leave --data out")

    def require_packages(self) -> None:
        """Raise UserError where a package is missing that its model or its data need; imports none."""
        if self.kind == "images":
            require_torchvision(self.name)
        if self.kind == "text" and find_spec("transformers") is None:
            raise missing_package("transformers", self.name)

    def build(self, image_size: int = 224) -> nn.Module:
        """The model with random weights; raises UserError if a package or a size does not fit it."""
        from stash.lab.zoo.models import build_model

        if self.kind == "images" and image_size < self.smallest_image:
            raise UserError(
                f"{self.name} needs images of at least {self.smallest_image} pixels, not {image_size}; "
                f"use --image-size {self.smallest_image} or more"
            )
        return build_model(self.name, self.kind)


def _read_workloads() -> dict[str, WorkloadSpec]:
    table = files("stash.lab.zoo").joinpath("workloads.csv").read_text(encoding="utf-8")
    specs = TypeAdapter(list[WorkloadSpec]).validate_python([*csv.DictReader(table.splitlines())])
    return {spec.name: spec for spec in specs}


WORKLOADS = _read_workloads()
"""Every workload by name, in the order of the listing."""


def workload(name: str) -> WorkloadSpec:
    """The workload called ``name``; raises UserError naming the nearest ones."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    near = find_nearest(name, WORKLOADS)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(
        f"no workload is called {name!r}; {hint}`stash lab zoo` lists all {len(WORKLOADS)}"
    )
