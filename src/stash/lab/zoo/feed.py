"""What a workload is fed, from a folder or from memory, and the loss of its task.

Files are read as ordinary training code does, one sample at a time: pictures by torchvision's ImageFolder, tokens from
a file opened for each sample. Sounds and clicks are only made in memory.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from stash.core.errors import UserError
from stash.core.imports import prepare_torchvision
from stash.lab.zoo.datasets import read_manifest
from stash.lab.zoo.models import DENSE, TABLES
from stash.lab.zoo.registry import SEQUENCE_LENGTH, WorkloadSpec
from stash.lab.zoo.synthesis import LABELS, VOCABULARY

Sample = tuple[Tensor, ...]


class Tokens(Dataset[Sample]):
    """Consecutive stretches of ``*.bin`` files of uint16 tokens, memory-mapped: ids (length,) int64.

    Two more 0-d int64 tensors mark where an answer starts and ends, a fixed function of the index. A file is mapped
    per sample (a map kept for long holds every page it touched), as in nanoGPT's ``get_batch``.
    """

    def __init__(self, root: Path, length: int) -> None:
        self.files = sorted(root.glob("*.bin"))
        self.length = length
        self.ends = [*accumulate(path.stat().st_size // 2 // length for path in self.files)]

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Sample:
        file = bisect_right(self.ends, index)
        begin = (index - (self.ends[file - 1] if file else 0)) * self.length
        path = self.files[file]
        stored = np.memmap(path, dtype="<u2", mode="r")[begin : begin + self.length]
        ids = torch.from_numpy(stored.astype(np.int64))
        if (largest := int(ids.max())) >= VOCABULARY:
            raise UserError(
                f"{path} holds token {largest}, but the model knows ids below {VOCABULARY}"
            )
        start, end = sorted(random.Random(index).choices(range(self.length), k=2))
        return ids, torch.tensor(start), torch.tensor(end)


def _open_picture(path: str) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as file:
            return file.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(
            f"the image {path} cannot be decoded: {error}; replace or delete it"
        ) from error


def _open_images(root: Path, size: int) -> Dataset[Sample]:
    """Pictures below ``root``, a folder for each class: (3, size, size) float32 and a 0-d int64 label."""
    prepare_torchvision()
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(size),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ]
    )
    feed: Dataset[Sample] = ImageFolder(
        str(root), augment, torch.tensor, loader=_open_picture, allow_empty=True
    )
    return feed


def open_feed(
    spec: WorkloadSpec, root: Path, image_size: int = 224, sequence_length: int | None = None
) -> Dataset[Sample]:
    """The samples below ``root`` as ``spec`` wants them; raises UserError if they are not what it reads."""
    spec.require_files()
    make = f"`stash lab dataset make {spec.kind} {root}`"
    if not root.is_dir():
        raise UserError(f"there is no data set folder {root}; {make} makes one")
    manifest = read_manifest(root)  # none: somebody's own data
    if manifest is not None and manifest.kind != spec.kind:
        raise UserError(
            f"{root} holds {manifest.kind}, but {spec.name} reads {spec.kind}; "
            f"`stash lab dataset make {spec.kind} PATH` makes some"
        )
    if manifest is not None and not manifest.complete:
        raise UserError(
            f"the data set {root} is unfinished; delete it, and make it again by {make}"
        )
    feed: Any = ()
    try:
        if spec.kind == "text":
            feed = Tokens(root, sequence_length or SEQUENCE_LENGTH)
        elif any(entry.is_dir() for entry in root.iterdir()):
            feed = _open_images(root, image_size)
    except OSError as error:
        raise UserError(f"the data set {root} cannot be read: {error.strerror or error}") from error
    if len(feed) == 0:
        raise UserError(
            f"{root} holds no {spec.kind} that {spec.name} can read; {make} fills an empty folder"
        )
    classes = len(getattr(feed, "classes", ()))
    if classes > LABELS["images"]:
        raise UserError(
            f"{root} has {classes} classes, but {spec.name} tells only {LABELS['images']} apart"
        )
    opened: Dataset[Sample] = feed
    return opened


WAVE = 8000
"""Values of a sound: a second at 8 kHz."""
_DISTINCT = 16
"""Samples that are made."""


class Synthetic(Dataset[Sample]):
    """A few random samples in memory, shaped and typed like those of ``open_feed``: no data, only the device's speed.

    They are handed out again and again under ``length`` indices.
    """

    def __init__(
        self,
        spec: WorkloadSpec,
        length: int,
        image_size: int = 224,
        sequence_length: int | None = None,
    ) -> None:
        self.length = length
        tokens = sequence_length or SEQUENCE_LENGTH
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.samples = [_make_sample(spec.kind, image_size, tokens) for _ in range(_DISTINCT)]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index % _DISTINCT]


def _make_sample(kind: str, image_size: int, tokens: int) -> Sample:
    if kind == "images":
        return torch.randn(3, image_size, image_size), torch.randint(LABELS["images"], ())
    if kind == "text":
        return torch.randint(VOCABULARY, (tokens,)), *torch.randint(tokens, (2,)).sort().values
    if kind == "audio":
        return torch.rand(1, WAVE) - 0.5, torch.randint(LABELS["audio"], ())
    categories = torch.cat([torch.randint(rows, (1,)) for rows in TABLES])
    return torch.rand(DENSE), categories, torch.randint(2, ()).float()


Loss = Callable[[nn.Module, Sequence[Tensor]], Tensor]
"""From a model and one batch, as its reader collates it, to a scalar."""


def classification(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of (inputs, labels)."""
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)


def question_answering(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of an answer's first and last token; batch is (ids, starts, ends)."""
    ids, starts, ends = batch
    loss: Tensor = model(input_ids=ids, start_positions=starts, end_positions=ends).loss
    return loss


def click_through(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Binary cross entropy of (counters, categories, clicked)."""
    dense, categories, clicked = batch
    return functional.binary_cross_entropy_with_logits(model(dense, categories), clicked)


LOSSES: Mapping[str, Loss] = {
    "images": classification,
    "text": question_answering,
    "audio": classification,
    "clicks": click_through,
}
"""By kind of data."""
