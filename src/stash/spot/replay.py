"""A fleet's asynchronous training on one device, in virtual time: the same gradients in the same order, no fleet.

A worker's gradient is of the parameters that it fetched when its iteration began, on samples it drew then; the
server's optimizer applies gradients in the order in which iterations end. What happens between the two on other
workers makes it stale. Knows no network: an iteration takes what its worker is said to take.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from stash.spot.model.queueing import asynchronous
from stash.spot.run_records import LOSS_WINDOW, LossReplay, VirtualWorker, mean_loss
from stash.spot.train.elastic_job import ElasticJob, build_optimizer
from stash.spot.train.samples import Data, SampleOrder, batch_of, samples_of
from stash.spot.train.server import build_model

_LARGEST_LOSS = 1e12
"""What is more is no loss of anything that still trains."""
_POINTS = 80
"""Of a course that are kept, evenly spread in the logarithm of updates."""


class DivergedError(Exception):
    """A loss that is no number any more, after so many updates."""

    def __init__(self, updates: int) -> None:
        super().__init__(updates)
        self.updates = updates


@dataclass
class WorkerGradient:
    """What a worker is computing."""

    of: list[Any]
    loss: float
    samples: int
    fetched: int
    """Updates that had been applied to the parameters it is of."""


class Server:
    """The job's model and its optimizer, as they would be on the parameter servers."""

    def __init__(self, job: ElasticJob, device: torch.device) -> None:
        self._job = job
        self._device = device
        self.model = build_model(job).to(device).train()
        self.parameters = [each for each in self.model.parameters() if each.requires_grad]
        self._optimizer = build_optimizer(job, self.parameters)
        self.updates = 0

    def gradient(self, data: Data, order: Iterator[int], samples: int) -> WorkerGradient:
        """Compute the gradient of the parameters as they are now, on the next samples."""
        loss = self._job.loss(
            self.model, batch_of(self._job, data, islice(order, samples), self._device)
        )
        found = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return WorkerGradient(list(found), float(loss.detach()), samples, self.updates)

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of its optimizer's state, which most optimizers make in their first update."""
        kept = (value for state in self._optimizer.state.values() for value in state.values())
        return sum(
            each.numel() * each.element_size() for each in kept if isinstance(each, torch.Tensor)
        )

    def zero_gradient(self) -> WorkerGradient:
        """A gradient that is 0."""
        return WorkerGradient(
            [torch.zeros_like(each) for each in self.parameters], 0.0, 0, self.updates
        )

    def apply(self, gradient: WorkerGradient) -> None:
        for parameter, its_gradient in zip(self.parameters, gradient.of, strict=True):
            parameter.grad = its_gradient
        self._optimizer.step()
        self.updates += 1


def replay(
    job: ElasticJob,
    data: Data,
    workers: tuple[VirtualWorker, ...],
    updates: int,
    seed: int,
    device: torch.device,
    keep_on: Callable[[], bool] = lambda: True,
) -> LossReplay | None:
    """The course of the loss over ``updates``, ``LOSS_WINDOW`` at least; ``None`` once ``keep_on`` returns False.

    Parameters begin as the job's own seed makes them, samples come in the order of ``seed``. Raises DivergedError.
    """
    began = time.perf_counter()
    server = Server(job, device)
    order = iter(SampleOrder(samples_of(data, "the job"), seed))
    torch.manual_seed(seed)
    kept = frozenset(np.geomspace(LOSS_WINDOW, updates, _POINTS).round().astype(int).tolist())
    recent: deque[tuple[float, int]] = deque(maxlen=LOSS_WINDOW)
    course: dict[int, float] = {}
    computing: dict[int, WorkerGradient] = {}
    stale = 0
    for worker in _workers_in_order(workers):
        if worker in computing:
            gradient = computing.pop(worker)
            stale += server.updates - gradient.fetched
            server.apply(gradient)
            if not abs(gradient.loss) <= _LARGEST_LOSS:  # what is no number is not less either
                raise DivergedError(server.updates)
            recent.append((gradient.loss, gradient.samples))
            if server.updates in kept:
                course[server.updates] = mean_loss(recent)
            if not keep_on():
                return None
            if server.updates == updates:
                break
        computing[worker] = server.gradient(data, order, workers[worker].samples)
    seconds = np.array([[each.seconds for each in workers]])
    samples = np.array([float(each.samples) for each in workers])
    pace = asynchronous(np.ones_like(seconds), seconds, samples)
    return LossReplay(
        workers=workers,
        seed=seed,
        mean_batch=float(pace.mean_batch[0]),
        imbalance=float(pace.imbalance[0]),
        staleness=stale / updates,
        updates=tuple(course),
        losses=tuple(course.values()),
        seconds=time.perf_counter() - began,
    )


def _workers_in_order(workers: tuple[VirtualWorker, ...]) -> Iterator[int]:
    """Who begins an iteration next, for ever: all at first, then whoever has ended one."""
    running = [(each.seconds, number) for number, each in enumerate(workers)]
    heapq.heapify(running)
    yield from range(len(workers))
    while True:
        now, worker = heapq.heappop(running)
        heapq.heappush(running, (now + workers[worker].seconds, worker))
        yield worker
