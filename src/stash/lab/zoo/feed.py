"""What a workload is fed, from a folder or from memory, and the loss of its task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from stash.core.errors import UserError
from stash.lab.zoo.datasets import read_manifest
from stash.lab.zoo.models import TABLES
from stash.lab.zoo.readers import Clicks, Sample, Speech, Tokens
from stash.lab.zoo.registry import WorkloadSpec
from stash.lab.zoo.synthesis import DENSE

# The right reader for a folder, or random samples from memory.


def open_feed(
    spec: WorkloadSpec, root: Path, image_size: int = 224, sequence_length: int | None = None
) -> Dataset[Sample]:
    """The samples below ``root`` as ``spec`` wants them; raises UserError if they are not what it reads."""
    make = f"`stash lab dataset make {spec.kind} {root}`"
    if not root.is_dir():
        raise UserError(f"there is no data set folder {root}; {make} makes one")
    try:
        _check_manifest(spec, root)
        feed = _reader(spec, root, image_size, sequence_length or spec.sequence_length)
    except OSError as error:
        raise UserError(f"the data set {root} cannot be read: {error.strerror or error}") from error
    if len(feed) == 0:  # type: ignore[arg-type]
        raise UserError(f"{root} holds no {spec.kind} that {spec.name} can read; {make} fills an empty folder")
    classes = len(getattr(feed, "classes", ()))
    if classes > spec.classes:
        raise UserError(f"{root} has {classes} classes, but {spec.name} tells only {spec.classes} apart")
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
            f"the data set {root} is unfinished; `stash lab dataset make {manifest.kind} {root}` completes it"
        )


def _reader(spec: WorkloadSpec, root: Path, image_size: int, sequence_length: int) -> Dataset[Sample]:
    if spec.kind == "text":
        return Tokens(root, sequence_length, spec.vocabulary, answers=spec.loss == "question_answering")
    if spec.kind == "audio":
        return Speech(root)
    if spec.kind == "clicks":
        return Clicks(root)
    from stash.lab.zoo.images import Images

    return Images(root, image_size)


class Synthetic(Dataset[Sample]):
    """A few random samples in memory, handed out again and again under ``length`` indices."""

    def __init__(self, samples: list[Sample], length: int) -> None:
        self.samples, self.length = samples, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return self.samples[index % len(self.samples)]


_DISTINCT = 16
"""Samples that are made."""


def synthetic_feed(
    spec: WorkloadSpec, length: int, image_size: int = 224, sequence_length: int | None = None
) -> Synthetic:
    """Random samples shaped and typed like those of ``open_feed``: the device's speed without any data."""
    random = torch.Generator().manual_seed(0)
    tokens = sequence_length or spec.sequence_length
    return Synthetic([_sample(spec, random, image_size, tokens) for _ in range(_DISTINCT)], length)


def _sample(spec: WorkloadSpec, random: torch.Generator, image_size: int, tokens: int) -> Sample:
    def integers(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=random)

    if spec.kind == "text":
        ids = integers(spec.vocabulary, tokens)
        if spec.loss != "question_answering":
            return (ids,)
        start, end = integers(tokens, 2).sort().values.unbind()
        return ids, start.clone(), end.clone()
    if spec.kind == "audio":
        return torch.rand(1, Speech.rate, generator=random) - 0.5, integers(spec.classes)
    if spec.kind == "clicks":
        categories = torch.cat([integers(rows, 1) for rows in TABLES])
        return torch.rand(DENSE, generator=random), categories, integers(2).float()
    return torch.randn(3, image_size, image_size, generator=random), integers(spec.classes)


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


def next_token(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Cross entropy of every next token; batch is (ids,)."""
    (ids,) = batch
    logits: Tensor = model(input_ids=ids).logits
    return functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def click_through(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """Binary cross entropy of (counters, categories, clicked)."""
    dense, categories, clicked = batch
    return functional.binary_cross_entropy_with_logits(model(dense, categories), clicked)
