"""What workers train on: samples in an order that a seed decides, as batches on a device.

Knows a job and its data set; which worker takes which batch is others' business.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
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


class SampleOrder:
    """Which sample stands where in an endless stream: every epoch has all of them, in an order of its own.

    A seed's stream is the same for who reads it from the beginning and for who asks for any place of it.
    """

    def __init__(self, count: int, seed: int) -> None:
        import torch

        self._count, self._shuffle = count, torch.Generator().manual_seed(seed)
        self._states = [self._shuffle.get_state()]
        """Of the generator before each epoch that was drawn, and before the next one."""
        self._epoch, self._places = -1, list[int]()

    def __getitem__(self, number: int) -> int:
        epoch, place = divmod(number, self._count)
        if epoch != self._epoch:
            self._epoch, self._places = epoch, self._drawn(epoch)
        return self._places[place]

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, itertools.count())

    def _drawn(self, epoch: int) -> list[int]:
        import torch

        for begun in range(min(epoch, len(self._states) - 1), epoch + 1):
            self._shuffle.set_state(self._states[begun])
            places = torch.randperm(self._count, generator=self._shuffle)
            if begun + 1 == len(self._states):
                self._states.append(self._shuffle.get_state())
        return places.tolist()


def batch_of(job: ElasticJob, data: Dataset[Any], samples: Iterable[int], device: torch.device) -> Any:
    """Those samples of ``data`` as the job collates them, on ``device``."""
    from torch.utils.data import default_collate

    collate = job.collate or default_collate
    return moved(collate([data[each] for each in samples]), device)


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
