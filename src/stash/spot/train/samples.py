"""The samples that a job trains on: their order, and how leased ones come through the job's own loader.

A job's ``data`` is a data set, or a ``DataLoader`` of one, whose workers, collating, pinning and prefetching are then
used as a script of its own would. Only which samples make a batch is not the loader's business: leases say that. What
a worker is to train on next is asked for ahead, so a loader's workers read over the border of leases. Who has which
lease is the coordinator's business: a batch of one that was taken away is dropped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from stash.core.errors import UserError
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.ledger import DataLease, Range

Data = Dataset[Any] | DataLoader[Any]
_BETWEEN_EPOCHS = 1_000_003
"""Of seeds: far more than there are replays of one job, whose seeds follow each other."""
_NOTHING = 0
"""Number of a request that asks for nothing: a loader that looks ahead is never told that it is at the end."""


def dataset_of(data: Data) -> Dataset[Any]:
    """The data set, of a loader the one behind it."""
    return data.dataset if isinstance(data, DataLoader) else data


def samples_of(data: Data, job: str) -> int:
    """How many there are; raises UserError for a data set without a length, or without samples."""
    try:
        count = len(dataset_of(data))  # type: ignore[arg-type]
    except TypeError:
        raise UserError(
            f"{job}: its data set has no length, and workers take samples by number; give it __len__ and __getitem__"
        ) from None
    if count < 1:
        raise UserError(f"{job}: its data set is empty; data() has to return one with samples")
    return count


class SampleOrder:
    """Which sample stands where in an endless stream: every epoch has all of them, in an order of its own."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._seed = seed
        self._epoch = -1
        self._places = list[int]()

    def __getitem__(self, number: int) -> int:
        epoch, place = divmod(number, self._count)
        if epoch != self._epoch:
            shuffle = torch.Generator().manual_seed(self._seed + _BETWEEN_EPOCHS * epoch)
            self._epoch = epoch
            self._places = torch.randperm(self._count, generator=shuffle).tolist()
        return self._places[place]

    def __iter__(self) -> Iterator[int]:
        return map(self.__getitem__, itertools.count())


def batch_of(job: ElasticJob, data: Data, samples: Iterable[int], device: torch.device) -> Any:
    """Load those samples here, collated as the job does, on ``device``."""
    return move_batch(_Batches(job, data)[1, list(samples)][1], device)


def move_batch(batch: Any, device: torch.device) -> Any:
    """``batch`` with all its tensors on ``device``, through dictionaries, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: move_batch(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move_batch(each, device) for each in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move_batch(each, device) for each in batch)
    return batch


class _Batches(Dataset[tuple[int, Any]]):
    """Batches by request, (its number, samples), whether a loader's worker reads them or not."""

    def __init__(self, job: ElasticJob, data: Data) -> None:
        self._data = dataset_of(data)
        own = default_collate
        if isinstance(data, DataLoader) and data.batch_sampler is not None:
            own = data.collate_fn
        self._collate: Callable[[list[Any]], Any] = job.collate or own

    def __getitem__(self, request: tuple[int, list[int]]) -> tuple[int, Any]:
        number, samples = request
        if number == _NOTHING:
            return number, None
        several = getattr(self._data, "__getitems__", None)
        return number, self._collate(
            several(samples) if several else [self._data[each] for each in samples]
        )


def _return_batch(batch: Any) -> Any:
    return batch


class LeaseFeed:
    """Batches of leases, ``batch`` samples at most in each."""

    def __init__(self, job: ElasticJob, batch: int) -> None:
        data = job.data()
        self._batch = batch
        self._order = SampleOrder(samples_of(data, "the job"), job.seed)
        self.ahead = 0
        """Leases that are read while one is trained on; none without workers."""
        self._requests: deque[tuple[int, list[int]]] = deque()
        self._numbers = itertools.count(_NOTHING + 1)
        self._coming: dict[int, Range] = {}
        """Requests whose batch has not arrived, and what they are of."""
        self._arrived: dict[Range, Any] = {}
        settings: dict[str, Any] = {}
        if isinstance(data, DataLoader):
            copied = (
                "num_workers",
                "pin_memory",
                "timeout",
                "worker_init_fn",
                "multiprocessing_context",
            )
            settings = {name: getattr(data, name) for name in (*copied, "prefetch_factor")}
            self.ahead = data.num_workers * (data.prefetch_factor or 0)
        seeds = torch.Generator()
        seeds.seed()  # of the loader's workers; the model's own random numbers stay as they are
        self._loader = DataLoader(
            _Batches(job, data),
            batch_size=None,
            sampler=self._next_requests(),
            collate_fn=_return_batch,
            generator=seeds,
            **settings,
        )
        self._batches: Iterator[Any] | None = None

    def batches(
        self, lease: DataLease, later: Sequence[DataLease] = ()
    ) -> Iterator[tuple[float, Any]]:
        """A lease's batches, each with its share of the samples; what comes ``later`` is read meanwhile."""
        own = self._ranges(lease)
        wanted = [*own, *(each for one in later for each in self._ranges(one))]
        self._arrived = {each: batch for each, batch in self._arrived.items() if each in wanted}
        for start, stop in wanted:
            if (start, stop) not in self._arrived and (start, stop) not in self._coming.values():
                number = next(self._numbers)
                self._coming[number] = start, stop
                self._requests.append((number, [self._order[each] for each in range(start, stop)]))
        if self._batches is None:
            # which asks for all that its workers may read at once
            self._batches = iter(self._loader)
        for start, stop in own:
            while (start, stop) not in self._arrived:
                number, batch = next(self._batches)
                if number != _NOTHING:
                    self._arrived[self._coming.pop(number)] = batch
            yield (stop - start) / lease.samples, self._arrived.pop((start, stop))

    def close(self) -> None:
        """End the loader's workers."""
        self._batches = None

    def _ranges(self, lease: DataLease) -> list[Range]:
        starts = range(lease.start, lease.stop, self._batch)
        return [(start, min(start + self._batch, lease.stop)) for start in starts]

    def _next_requests(self) -> Iterator[tuple[int, list[int]]]:
        while True:
            yield self._requests.popleft() if self._requests else (_NOTHING, [])
