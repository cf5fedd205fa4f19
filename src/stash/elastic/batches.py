"""What workers train on: samples in an order that a seed decides, as batches on a device.

Knows a job and its data set; which worker takes which batch is others' business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stash.base.errors import UserError
from stash.elastic.job import ElasticJob

if TYPE_CHECKING:
    import torch
    from torch.utils.data import Dataset


def samples_of(data: Dataset[Any], job: str) -> int:
    """How many there are; raises UserError for a data set without a length, or without samples."""
    try:
        count = len(data)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(
            f"{job}: its data set has no length, and workers take samples by number; give it __len__ and __getitem__"
        ) from None
    if count < 1:
        raise UserError(f"{job}: its data set is empty; data() has to return one with samples")
    return count


def sample_order(count: int, seed: int) -> Iterator[int]:
    """Numbers of samples, for ever: every epoch has all of them, in an order of its own."""
    import torch

    shuffle = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=shuffle).tolist()


def batch_of(job: ElasticJob, data: Dataset[Any], order: Iterator[int], size: int, device: torch.device) -> Any:
    """The next ``size`` samples of ``order``, on ``device``."""
    from torch.utils.data import default_collate

    collate = job.collate or default_collate
    return moved(collate([data[next(order)] for _ in range(size)]), device)


def moved(batch: Any, device: torch.device) -> Any:
    """``batch`` with all its tensors on ``device``, through dictionaries, lists and tuples."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(moved(each, device) for each in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(each, device) for each in batch)
    return batch
