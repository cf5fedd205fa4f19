"""One shard of the parameters: applies gradients with the job's own optimizer, each lease once, and remembers which.

Serves workers of the run over ``frames``, a thread each; receiving and sending go on side by side, applying is one at
a time. Takes gradients of leases that the worker was given, if they are finite.
Its checkpoint holds parameters, optimizer state and the samples it has applied, so that nothing else has to be saved
with it. Knows no Ray, no ledger.
"""

from __future__ import annotations

import hmac
import io
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stash.base.errors import StashError, UserError, one_line
from stash.base.files import write_whole
from stash.base.membership import Door, RunMember, hang_up
from stash.elastic import checkpoints
from stash.elastic.training.frames import (
    PURPOSE,
    STALL_SECONDS,
    FrameHead,
    FrameKind,
    Tray,
    drain,
    receive_head,
    receive_tray,
    send_bytes,
    send_head,
    tuned,
)
from stash.elastic.training.ledger import DataLease, lease_tag
from stash.elastic.training.shares import shares
from stash.elastic.training.spans import Spans

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stash.elastic.job import ElasticJob


class ParameterShard:
    """What one server keeps. ``apply_seconds`` emulates a slower machine: how long an update takes at least."""

    def __init__(self, job: ElasticJob, number: int, servers: int, apply_seconds: float = 0.0) -> None:
        whole = build_model(job)
        self.number, self.servers = number, servers
        names = parts(whole, servers)[number]
        trained, others = dict(whole.named_parameters()), dict(whole.named_buffers())
        self.parameters = {
            name: torch.nn.Parameter(trained[name].detach().clone()) for name in names if name in trained
        }
        self.buffers = {name: others[name].detach().clone() for name in names if name in others}
        self.optimizer = job.optimizer(list(self.parameters.values()))
        self.applied = Spans()
        self.version = 0
        self._apply_seconds = apply_seconds
        self._lock = threading.Lock()
        self._saving = threading.Lock()

    @property
    def tensors(self) -> list[Tensor]:
        """As they lie in a tray: parameters, then the model's buffers, which the last worker's replace."""
        return [*self.parameters.values(), *self.buffers.values()]

    def take(self, lease: DataLease, tray: Tray, out: Tray) -> tuple[FrameKind, int]:
        """Apply what is in ``tray`` unless it was, and put the parameters into ``out``: outcome and version."""
        with self._lock:
            began = time.monotonic()
            if self.applied.holds(lease.start, lease.stop):
                outcome = FrameKind.REPEATED
            elif self.applied.touches(lease.start, lease.stop):
                outcome = FrameKind.REFUSED
            else:
                self._step(tray.filled())
                self.applied.add(lease.start, lease.stop)
                self.version += 1
                outcome = FrameKind.APPLIED
                time.sleep(max(0.0, began + self._apply_seconds - time.monotonic()))
            out.fill(self.tensors)
            return outcome, self.version

    def read(self, out: Tray) -> int:
        """Put the parameters into ``out``; their version."""
        with self._lock:
            out.fill(self.tensors)
            return self.version

    def _step(self, received: Sequence[Tensor | None]) -> None:
        gradients, buffers = received[: len(self.parameters)], received[len(self.parameters) :]
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        for parameter in self.parameters.values():
            parameter.grad = None
        for buffer, value in zip(self.buffers.values(), buffers, strict=True):
            if value is not None:
                buffer.copy_(value)

    def state(self) -> dict[str, Tensor]:
        """A copy of its part of the model's ``state_dict``."""
        with self._lock:
            named = {**self.parameters, **self.buffers}
            return {name: tensor.detach().clone() for name, tensor in named.items()}

    def save(self, folder: Path) -> Path:
        """Write a checkpoint; training goes on once the state is copied. Raises OSError."""
        with self._saving:
            content = io.BytesIO()
            with self._lock:
                state = {
                    "parameters": {name: each.detach() for name, each in self.parameters.items()},
                    "buffers": self.buffers,
                    "optimizer": self.optimizer.state_dict(),
                }
                torch.save(state, content)
                facts = self._identity() | {"version": self.version, "applied": self.applied.ranges}
            return checkpoints.save(folder, self.number, facts, content.getvalue())

    def resume(self, folder: Path) -> checkpoints.StoredState | None:
        """Go on where the newest whole checkpoint was; raises UserError if it is of another model or fleet."""
        found = checkpoints.newest(folder, self.number)
        if found is None:
            return None
        for fact, own in self._identity().items():
            if found.facts.get(fact) != own:
                raise UserError(
                    f"the checkpoint {found.path} is of another job: its {fact} differ; name another --checkpoint "
                    "folder, or run the job it is of"
                )
        state = torch.load(io.BytesIO(found.content), weights_only=True)
        with self._lock, torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["parameters"][name])
            for name, buffer in self.buffers.items():
                buffer.copy_(state["buffers"][name])
            self.optimizer.load_state_dict(state["optimizer"])
            self.applied, self.version = Spans(found.facts["applied"]), int(found.facts["version"])
        return found

    def _identity(self) -> dict[str, Any]:
        named = {**self.parameters, **self.buffers}
        return {
            "servers": self.servers,
            "tensors": [[name, str(tensor.dtype), list(tensor.shape)] for name, tensor in named.items()],
            "optimizer": type(self.optimizer).__name__,
        }


def build_model(job: ElasticJob) -> nn.Module:
    """The job's model with its first parameters: the same ones in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(job.seed)
        return job.model()


def parts(model: nn.Module, servers: int) -> tuple[tuple[str, ...], ...]:
    """What each server keeps: its share of what is trained, and the first one the model's buffers too."""
    sizes = {
        name: each.numel() * each.element_size() for name, each in model.named_parameters() if each.requires_grad
    }
    if not sizes:
        raise UserError("the job's model has no parameters that are trained")
    first, *others = shares(sizes, servers)
    return ((*first, *(name for name, _ in model.named_buffers())), *others)


# Serving --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunKeys:
    """What a server knows people by."""

    run: bytes = field(repr=False)
    """The run's secret, which its workers have too."""
    leases: bytes = field(repr=False)
    """With which the coordinator signs leases; no worker has it."""


class ShardServer:
    """Listens for workers and answers each in a thread of its own, until it is closed.

    At most ``at_once`` send, and as many receive, at the same time, who came first going first. Alike workers that
    share a link fall into step otherwise, all sending and then all receiving, and stay in it (decision 18).
    """

    def __init__(self, shard: ParameterShard, host: str, keys: RunKeys, at_once: int = 1, most: int = 64) -> None:
        """``most``: workers that are connected at the same time; each costs the memory of two trays."""
        self._shard, self._keys, self._most = shard, keys, most
        self._receiving, self._sending = threading.Semaphore(at_once), threading.Semaphore(at_once)
        listener = socket.create_server((host, 0))
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._links: dict[str, socket.socket] = {}
        """Of each worker its latest: one whose machine lost the connection comes back before that is noticed."""
        self._lock = threading.Lock()
        self._door = Door(listener, keys.run, PURPOSE, self._serve)

    def close(self) -> None:
        """No worker is answered any more."""
        self._door.close()
        for link in list(self._links.values()):
            hang_up(link)

    def _serve(self, link: socket.socket, worker: RunMember) -> None:
        with self._lock:
            full = len(self._links) >= self._most and worker.name not in self._links
            before = None if full else self._links.get(worker.name)
            if not full:
                self._links[worker.name] = link
        if before is not None:
            hang_up(before)
        try:
            with link:
                if full:
                    raise StashError(f"{self._most} workers are connected already, as many as there may be")
                self._talk(tuned(link), worker.name)
        except OSError:
            pass  # the worker went; it, or its successor, will ask again
        except StashError as error:
            print(f"{worker.name} was hung up on: {one_line(error)}", file=sys.stderr, flush=True)
        finally:
            with self._lock:
                if self._links.get(worker.name) is link:
                    del self._links[worker.name]

    def _talk(self, link: socket.socket, worker: str) -> None:
        trays: tuple[Tray, Tray] | None = None  # not before something is asked that makes sense
        while True:
            head = receive_head(link)
            self._check(head, worker)
            if trays is None:
                trays = Tray(self._shard.tensors), Tray(self._shard.tensors)
            self._answer(link, head, *trays)

    def _check(self, head: FrameHead, worker: str) -> None:
        """Raise StashError for what no worker of this run asks."""
        lease = head.lease
        if head.message is FrameKind.PUSH:
            if not hmac.compare_digest(lease.tag, lease_tag(self._keys.leases, worker, lease)):
                raise StashError(f"the samples {lease.start} to {lease.stop} were not leased to it")
        elif head.message is not FrameKind.PULL:
            raise StashError(f"{head.message.name} is nothing that a worker asks")

    def _answer(self, link: socket.socket, head: FrameHead, received: Tray, answer: Tray) -> None:
        outcome = FrameKind.PARAMETERS
        link.settimeout(STALL_SECONDS)
        if head.message is FrameKind.PUSH:
            with self._receiving:
                send_head(link, FrameKind.SEND, head.lease, head.version)
                receive_tray(link, head, received)
            if received.is_finite(len(self._shard.parameters)):
                outcome, version = self._shard.take(head.lease, received, answer)
            else:
                outcome, version = FrameKind.NOT_FINITE, self._shard.read(answer)
        else:
            version = self._shard.read(answer)
        with self._sending:
            send_head(link, outcome, head.lease, version, len(answer.bytes))
            send_bytes(link, answer.bytes)
            drain(link)
        link.settimeout(None)


def save_model(job: ElasticJob, states: Iterable[dict[str, Tensor]], path: Path) -> None:
    """The whole model's ``state_dict``, of what each server keeps; what is never trained is as the job makes it."""
    whole = build_model(job).state_dict()
    for state in states:
        whole.update(state)
    content = io.BytesIO()
    torch.save(whole, content)
    write_whole(path, content.getvalue())
