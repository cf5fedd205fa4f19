"""A worker: takes a lease, computes its gradient on its batch, hands it to all servers, gets their parameters back.

It decides nothing: who trains on what, and when, is the coordinator's. A server that is gone is looked for again at
the address its successor has. Knows no Ray; CUDA if there is one.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from stash.core.membership import connect
from stash.spot.train.elastic_job import ElasticJob
from stash.spot.train.frames import (
    NO_LEASE,
    PURPOSE,
    FrameKind,
    TensorBuffer,
    receive_head,
    receive_tray,
    send_bytes,
    send_head,
    tune_link,
)
from stash.spot.train.ledger import DataLease, UpdateReport
from stash.spot.train.run_orders import Address
from stash.spot.train.samples import LeaseFeed, move_batch
from stash.spot.train.server import build_model, list_parts

if TYPE_CHECKING:
    from torch import Tensor

    from stash.spot.train.coordinator import Coordinator


_CONNECT_SECONDS = 5.0
_BETWEEN_TRIES = 0.5


class ServerLinks:
    """Connections to all servers, and the parameters that they keep."""

    def __init__(
        self,
        addresses: Sequence[Address],
        tensors: Sequence[Sequence[Tensor]],
        secret: bytes,
        name: str,
    ) -> None:
        """``tensors``: of each server, in its order. Raises OSError, which StrangerError is."""
        self._trays = [(TensorBuffer(each), TensorBuffer(each)) for each in tensors]
        self._versions = [0] * len(tensors)
        self._pool = ThreadPoolExecutor(len(tensors))
        self._links: list[socket.socket] = []
        try:
            for address in addresses:
                link, _ = connect(address, secret, PURPOSE, name, _CONNECT_SECONDS)
                self._links.append(tune_link(link))
        except OSError:
            self.close()
            raise

    def pull(self) -> list[list[Tensor | None]]:
        """The parameters of every server."""
        return self._all(FrameKind.PULL, NO_LEASE)[1]

    def push(
        self, lease: DataLease, gradients: Sequence[Sequence[Tensor | None]]
    ) -> tuple[list[FrameKind], int, Any]:
        """Hand in gradients, all servers at once: their outcomes, the staleness, and their parameters."""
        for (out, _), each in zip(self._trays, gradients, strict=True):
            out.fill(each)
        before = list(self._versions)
        outcomes, found = self._all(FrameKind.PUSH, lease)
        since = [
            now - then - (outcome is FrameKind.APPLIED)
            for now, then, outcome in zip(self._versions, before, outcomes, strict=True)
        ]
        return outcomes, max(since), found

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._pool.shutdown(wait=False)

    def _all(
        self, message: FrameKind, lease: DataLease
    ) -> tuple[list[FrameKind], list[list[Tensor | None]]]:
        done = list(
            self._pool.map(
                lambda server: self._one(server, message, lease), range(len(self._links))
            )
        )
        return done, [arrived.read_tensors() for _, arrived in self._trays]

    def _one(self, server: int, message: FrameKind, lease: DataLease) -> FrameKind:
        link, (out, arrived) = self._links[server], self._trays[server]
        size = len(out.bytes) if message is FrameKind.PUSH else 0
        send_head(link, message, lease, self._versions[server], size)
        head = receive_head(link)
        if head.message is FrameKind.SEND:
            send_bytes(link, out.bytes)
            head = receive_head(link)
        receive_tray(link, head, arrived)
        self._versions[server] = head.version
        return head.message


class Trainer:
    """The job on this machine: its model on each of its GPUs, its data, and the loss of a lease."""

    def __init__(
        self, job: ElasticJob, servers: int, batch: int, devices: Sequence[torch.device] = ()
    ) -> None:
        """``batch``: samples of a lease, which ``devices`` share; without any the processor has all of them."""
        self._devices = tuple(devices) or (torch.device("cpu"),)
        self._job = job
        self.feed = LeaseFeed(job, math.ceil(batch / len(self._devices)))
        self._models = [build_model(job) for _ in self._devices]
        named = list_parts(self._models[0], servers)
        for model, device in zip(self._models, self._devices, strict=True):
            model.to(device).train()
        self._copies = [_places(model, named) for model in self._models]
        self._parameters = [
            [tensor for tensor in own if isinstance(tensor, torch.nn.Parameter)]
            for own in self.tensors
        ]
        self._pool = ThreadPoolExecutor(len(self._devices))

    @property
    def tensors(self) -> list[list[Tensor]]:
        """The tensors of each server, in its order, on the first device."""
        return self._copies[0]

    def load(self, values: Sequence[Sequence[Tensor | None]]) -> None:
        """Take over what the servers sent."""
        with torch.no_grad():
            for copy in self._copies:
                for own, sent in zip(copy, values, strict=True):
                    for tensor, value in zip(own, sent, strict=True):
                        if value is not None:
                            tensor.copy_(value)

    def gradients(
        self, lease: DataLease, later: Sequence[DataLease] = ()
    ) -> tuple[float, list[list[Tensor | None]]]:
        """The mean loss of a lease, and its gradients with the buffers behind them, as servers take them.

        The devices compute its parts side by side; what comes ``later`` is read meanwhile.
        """
        for model in self._models:
            model.zero_grad(set_to_none=True)
        shares = self.feed.batches(lease, later)
        total = 0.0
        while group := list(islice(shares, len(self._devices))):
            total += sum(self._pool.map(self._compute, range(len(group)), group))
        for copy in self._copies[1:]:
            for own, others in zip(self._copies[0], copy, strict=True):
                for tensor, other in zip(own, others, strict=True):
                    if other.grad is not None:
                        more = other.grad.to(tensor.device)
                        tensor.grad = more if tensor.grad is None else tensor.grad + more
        return total, [
            [*(each.grad for each in own), *every[len(own) :]]
            for own, every in zip(self._parameters, self.tensors, strict=True)
        ]

    def _compute(self, number: int, part: tuple[float, Any]) -> float:
        (share, batch), device = part, self._devices[number]
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            loss = self._job.loss(self._models[number], move_batch(batch, device))
            (loss * share).backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()) * share

    def is_finite(self) -> bool:
        """Whether every gradient that was computed last is."""
        found = (each.grad for own in self._parameters for each in own if each.grad is not None)
        return all(bool(each.isfinite().all()) for each in found)


def _places(model: torch.nn.Module, named: Sequence[Sequence[str]]) -> list[list[Tensor]]:
    """Of each server its tensors in a model: those that are trained, then the buffers, as ``list_parts`` has them."""
    known = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return [[known[name] for name in names] for names in named]


def devices_here(gpus: int) -> list[torch.device]:
    """So many GPUs as there are, at most ``gpus``."""
    return [torch.device("cuda", number) for number in range(min(gpus, torch.cuda.device_count()))]


def work(name: str, trainer: Trainer, coordinator: Coordinator, secret: bytes) -> int:
    """Train until the coordinator says that it is enough; how many leases were done."""
    done = 0
    report = None
    for links in _connections(trainer, coordinator, secret, name):
        try:
            trainer.load(links.pull())
            while True:
                lease = coordinator.next_lease(name, report)
                report = None
                if lease is None:
                    return done
                # unless it comes to more
                report = UpdateReport(lease, False, False, float("nan"), 0)
                later = coordinator.later(name, trainer.feed.ahead) if trainer.feed.ahead else ()
                loss, gradients = trainer.gradients(lease, later)
                if not (math.isfinite(loss) and trainer.is_finite()):
                    report = UpdateReport(lease, False, False, loss, 0, finite=False)
                    trainer.load(links.pull())
                    continue
                outcomes, staleness, values = links.push(lease, gradients)
                trainer.load(values)
                refused = FrameKind.REFUSED in outcomes
                report = UpdateReport(lease, not refused, refused, loss, staleness)
                done += not refused
        except OSError:  # a server went
            time.sleep(_BETWEEN_TRIES)
        finally:
            links.close()
    return done


def _connections(
    trainer: Trainer, coordinator: Coordinator, secret: bytes, name: str
) -> Iterator[ServerLinks]:
    """Connections to the servers wherever they are now, new ones whenever the last are of no use; until the end."""
    while addresses := coordinator.servers():
        try:
            yield ServerLinks(addresses, trainer.tensors, secret, name)
        except OSError:
            time.sleep(_BETWEEN_TRIES)
