"""What a workload is fed, from a folder or from memory, and the loss of its task.

Token files are read as ordinary training code does, one sample at a time, a file opened for each; ``images`` reads
pictures. Sounds and clicks are only made in memory.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from stash.core.errors import UserError
from stash.lab.zoo.datasets import read_manifest
from stash.lab.zoo.models import DENSE, TABLES
from stash.lab.zoo.registry import LABELS, SEQUENCE_LENGTH, WorkloadSpec
from stash.lab.zoo.synthesis import VOCABULARY

Sample = tuple[Tensor, ...]


class Tokens(Dataset[Sample]):
    """Consecutive stretches of ``*.bin`` files of uint16 tokens, memory-mapped: ids (length,) int64.

    Two more 0-d int64 tensors mark where an answer starts and ends, a fixed function of the index. A file is mapped
    per sample (a map kept for long holds every page it touched), as in nanoGPT's ``get_batch``.
    """

    def __init__(self, root: Path, length: int) -> None:
        self.files = sorted(root.glob("*.bin"))
        self.length = length
        counts = [path.stat().st_size // 2 // length for path in self.files]
        self.ends = list(accumulate(counts))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self.ends[-1]:
            raise IndexError(index)
        file = bisect_right(self.ends, index)
        offset = index - (self.ends[file - 1] if file else 0)
        path = self.files[file]
        stored = np.memmap(path, dtype="<u2", mode="r")
        ids = torch.from_numpy(
            stored[offset * self.length : (offset + 1) * self.length].astype(np.int64)
        )
        if (largest := int(ids.max())) >= VOCABULARY:
            raise UserError(
                f"{path} holds token {largest}, but the model knows ids below {VOCABULARY}"
            )
        start, end = sorted(random.Random(index).choices(range(self.length), k=2))
        return ids, torch.tensor(start), torch.tensor(end)


# The right reader for a folder, or random samples from memory.


def open_feed(
    spec: WorkloadSpec, root: Path, image_size: int = 224, sequence_length: int | None = None
) -> Dataset[Sample]:
    """The samples below ``root`` as ``spec`` wants them; raises UserError if they are not what it reads."""
    spec.require_files()
    make = f"`stash lab dataset make {spec.kind} {root}`"
    if not root.is_dir():
        raise UserError(f"there is no data set folder {root}; {make} makes one")
    try:
        _check_manifest(spec, root)
        feed: Images | Tokens
        if spec.kind == "images":
            from stash.lab.zoo.images import Images

            feed = Images(root, image_size)
        else:
            feed = Tokens(root, sequence_length or SEQUENCE_LENGTH)
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
    return feed


def _check_manifest(spec: WorkloadSpec, root: Path) -> None:
    manifest = read_manifest(root)
    if manifest is None:  # Somebody's own data.
        return
    if manifest.kind != spec.kind:
        raise UserError(
            f"{root} holds {manifest.kind}, but {spec.name} reads {spec.kind}; "
            f"`stash lab dataset make {spec.kind} PATH` makes some"
        )
    if not manifest.complete:
        raise UserError(
            f"the data set {root} is unfinished; delete it, and make it again by `stash lab dataset make "
            f"{manifest.kind} {root}`"
        )


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
        generator = torch.Generator().manual_seed(0)
        tokens = sequence_length or SEQUENCE_LENGTH

        def integers(limit: int, *shape: int) -> Tensor:
            return torch.randint(limit, shape, generator=generator)

        def make_answer() -> Sample:
            ids, (start, end) = integers(VOCABULARY, tokens), integers(tokens, 2).sort().values
            return ids, start.clone(), end.clone()

        makers: Mapping[str, Callable[[], Sample]] = {
            "images": lambda: (
                torch.randn(3, image_size, image_size, generator=generator),
                integers(LABELS["images"]),
            ),
            "text": make_answer,
            "audio": lambda: (
                torch.rand(1, WAVE, generator=generator) - 0.5,
                integers(LABELS["audio"]),
            ),
            "clicks": lambda: (
                torch.rand(DENSE, generator=generator),
                torch.cat([integers(rows, 1) for rows in TABLES]),
                integers(2).float(),
            ),
        }
        self.samples = [makers[spec.kind]() for _ in range(_DISTINCT)]
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.samples[index % len(self.samples)]


# The loss of each task: from a model and one batch, as its reader collates it, to a scalar.

Loss = Callable[[nn.Module, Sequence[Tensor]], Tensor]


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
