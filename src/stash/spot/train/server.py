"""One shard of the parameters: applies gradients with the job's own optimizer, each lease once.

Serves workers over ``frames``, a thread each; receiving and sending go on side by side, applying is one at a time.
Which tensors a server keeps is here, too. Knows no Ray, no ledger.
"""

from __future__ import annotations

import contextlib
import hmac
import io
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from stash.core.errors import JobError, StashError, UserError, one_line
from stash.core.files import write_whole
from stash.core.membership import Door, RunMember, hang_up
from stash.spot.train import saved_shards
from stash.spot.train.elastic_job import build_optimizer
from stash.spot.train.frames import (
    PURPOSE,
    STALL_SECONDS,
    FrameHead,
    FrameKind,
    TensorBuffer,
    drain,
    receive_head,
    receive_tray,
    send_bytes,
    send_head,
    tune_link,
)
from stash.spot.train.ledger import DataLease, Spans, lease_tag

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stash.spot.train.elastic_job import ElasticJob


def shares(sizes: Mapping[str, int], servers: int) -> tuple[tuple[str, ...], ...]:
    """The names that each of ``servers`` keeps, in the model's order; ``sizes`` in bytes. Raises UserError.

    Largest first, to whoever has least (Graham, 1969): at most a third more than the evenest shares have. Tensors
    stay whole, because an optimizer may look at one as such (its norm, its rows).
    """
    if servers < 1 or servers > len(sizes):
        raise UserError(
            f"{servers} servers cannot share {len(sizes)} parameters, which stay whole; take 1 to {len(sizes)}"
        )
    load = [0] * servers
    home: dict[str, int] = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        least = min(range(servers), key=lambda server: (load[server], server))
        home[name] = least
        load[least] += max(1, sizes[name])
    return tuple(tuple(name for name in sizes if home[name] == server) for server in range(servers))


class ParameterShard:
    """What one server keeps: parameters, optimizer state, and which samples it has applied, each once.

    All of that is in its checkpoints, so that nothing else has to be saved with them.
    """

    def __init__(self, job: ElasticJob, number: int, servers: int) -> None:
        whole = build_model(job)
        self.number = number
        self.servers = servers
        names = list_parts(whole, servers)[number]
        trained = dict(whole.named_parameters())
        others = dict(whole.named_buffers())
        self.parameters = {
            name: torch.nn.Parameter(_alone(trained[name])) for name in names if name in trained
        }
        self.buffers = {name: _alone(others[name]) for name in names if name in others}
        self.optimizer = build_optimizer(job, list(self.parameters.values()))
        self.failure: Future[None] = Future()
        """Ends with the first error that is not a connection's; whoever follows the server waits for it."""
        self.applied = Spans()
        self.version = 0
        self._lock = threading.Lock()
        self._saving = threading.Lock()

    @property
    def tensors(self) -> list[Tensor]:
        """The tensors in a tray's order: parameters, then the model's buffers, which the last worker's replace."""
        return [*self.parameters.values(), *self.buffers.values()]

    def apply_gradients(
        self, lease: DataLease, tray: TensorBuffer, out: TensorBuffer
    ) -> tuple[FrameKind, int]:
        """Apply what is in ``tray`` unless it was, and put the parameters into ``out``: outcome and version.

        ``out`` may be ``tray``. Raises JobError if the update fails, which ``failure`` then has.
        """
        with self._lock:
            if self.applied.holds(lease.start, lease.stop):
                outcome = FrameKind.REPEATED
            elif self.applied.touches(lease.start, lease.stop):
                outcome = FrameKind.REFUSED
            else:
                self._step(tray.read_tensors())
                self.applied.add(lease.start, lease.stop)
                self.version += 1
                outcome = FrameKind.APPLIED
            out.fill(self.tensors)
            return outcome, self.version

    def copy_parameters(self, out: TensorBuffer) -> int:
        """Put the parameters into ``out``; their version."""
        with self._lock:
            out.fill(self.tensors)
            return self.version

    def _step(self, received: Sequence[Tensor | None]) -> None:
        if self.failure.done():  # what it holds is half updated
            raise JobError("an earlier update has failed")
        gradients = received[: len(self.parameters)]
        buffers = received[len(self.parameters) :]
        try:
            for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
                parameter.grad = gradient
            self.optimizer.step()
            for parameter in self.parameters.values():
                parameter.grad = None
            for buffer, value in zip(self.buffers.values(), buffers, strict=True):
                if value is not None:
                    buffer.copy_(value)
        except Exception as error:
            raise self.record_failure(
                f"{type(self.optimizer).__name__}.step() failed:", error
            ) from error

    def record_failure(self, what: str, error: Exception) -> JobError:
        """End ``failure`` with this error, unless an earlier one has; the error to raise."""
        found = JobError(f"{what} {type(error).__name__}: {one_line(error)}")
        with contextlib.suppress(InvalidStateError):
            self.failure.set_exception(found)
        return found

    @property
    def named_tensors(self) -> dict[str, Tensor]:
        return {**self.parameters, **self.buffers}

    def pack(self) -> Tensor:
        """A copy of what it keeps, laid out as a tray: as little memory as it takes."""
        tray = TensorBuffer(self.tensors)
        self.copy_parameters(tray)
        return tray.buffer

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
            return saved_shards.save_shard(folder, self.number, facts, content.getbuffer())

    def resume(self, folder: Path) -> saved_shards.StoredState | None:
        """Go on where the newest whole checkpoint was; raises UserError if it is of another model or fleet."""
        folder.mkdir(parents=True, exist_ok=True)  # in a bucket there is none at first
        found = saved_shards.newest_shard(folder, self.number)
        if found is None:
            return None
        for fact, own in self._identity().items():
            if found.facts.get(fact) != own:
                raise UserError(
                    f"the checkpoint {found.path} is of another job: its {fact} differ; name another "
                    "--checkpoint-dir, or run the job it is of"
                )
        state = torch.load(io.BytesIO(found.content), weights_only=True)
        with self._lock, torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state["parameters"][name])
            for name, buffer in self.buffers.items():
                buffer.copy_(state["buffers"][name])
            self.optimizer.load_state_dict(state["optimizer"])
            self.applied = Spans(found.facts["applied"])
            self.version = int(found.facts["version"])
        return found

    def _identity(self) -> dict[str, Any]:
        return {
            "servers": self.servers,
            "tensors": [
                [name, str(tensor.dtype), list(tensor.shape)]
                for name, tensor in self.named_tensors.items()
            ],
            "optimizer": type(self.optimizer).__name__,
        }


def build_model(job: ElasticJob) -> nn.Module:
    """The job's model with its first parameters: the same ones in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(job.seed)
        return job.model()


def _alone(tensor: Tensor) -> Tensor:
    """The tensor without its history, and without others that share its memory: a copy only where some do."""
    own = tensor.detach()
    return (
        own if own.untyped_storage().nbytes() == own.numel() * own.element_size() else own.clone()
    )


def list_parts(model: nn.Module, servers: int) -> tuple[tuple[str, ...], ...]:
    """What each server keeps: its share of what is trained, and the first one the model's buffers too."""
    sizes = {
        name: each.numel() * each.element_size()
        for name, each in model.named_parameters()
        if each.requires_grad
    }
    if not sizes:
        raise UserError("the job's model has no parameters that are trained")
    first, *others = shares(sizes, servers)
    return ((*first, *(name for name, _ in model.named_buffers())), *others)


def trays_of(at_once: int) -> int:
    """Buffers of a server: for each that sends, for each that receives, and for the one whose update is applied."""
    return 2 * at_once + 1


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
    share a link fall into step otherwise, all sending and then all receiving, and stay in it (decision 18). Whoever
    sends, waits for its update or receives has one of ``trays_of(at_once)`` buffers, however many are connected.
    """

    def __init__(
        self, shard: ParameterShard, host: str, keys: RunKeys, at_once: int = 1, most: int = 64
    ) -> None:
        """``most``: workers that are connected at the same time; they share ``trays_of(at_once)`` buffers."""
        self._shard = shard
        self._keys = keys
        self._most = most
        self._trays = threading.Semaphore(trays_of(at_once))
        self._free = list[TensorBuffer]()
        self._receiving = threading.Semaphore(at_once)
        self._sending = threading.Semaphore(at_once)
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
                    raise StashError(
                        f"{self._most} workers are connected already, as many as there may be"
                    )
                self._talk(tune_link(link), worker.name)
        except OSError:
            pass  # the worker went; it, or its successor, will ask again
        except StashError as error:
            print(f"{worker.name} was hung up on: {one_line(error)}", file=sys.stderr, flush=True)
        finally:
            with self._lock:
                if self._links.get(worker.name) is link:
                    del self._links[worker.name]

    def _talk(self, link: socket.socket, worker: str) -> None:
        while True:
            head = receive_head(link)
            self._check(head, worker)  # no buffer before something is asked that makes sense
            try:
                with self._tray() as tray:
                    outcome = FrameKind.PARAMETERS
                    link.settimeout(STALL_SECONDS)
                    if head.message is FrameKind.PUSH:
                        with self._receiving:
                            send_head(link, FrameKind.SEND, head.lease, head.version)
                            receive_tray(link, head, tray)
                        outcome, version = self._shard.apply_gradients(head.lease, tray, tray)
                    else:
                        version = self._shard.copy_parameters(tray)
                    with self._sending:
                        send_head(link, outcome, head.lease, version, len(tray.bytes))
                        send_bytes(link, tray.bytes)
                        drain(link)
                    link.settimeout(None)
            except (OSError, StashError):
                raise
            except (
                Exception
            ) as error:  # the server's own, like no memory: workers would try for ever
                raise self._shard.record_failure("an exchange failed:", error) from error

    def _check(self, head: FrameHead, worker: str) -> None:
        """Raise StashError for what no worker of this run asks."""
        lease = head.lease
        if head.message is FrameKind.PUSH:
            if not hmac.compare_digest(lease.tag, lease_tag(self._keys.leases, worker, lease)):
                raise StashError(f"the samples {lease.start} to {lease.stop} were not leased to it")
        elif head.message is not FrameKind.PULL:
            raise StashError(f"{head.message.name} is nothing that a worker asks")

    @contextlib.contextmanager
    def _tray(self) -> Iterator[TensorBuffer]:
        with self._trays:
            tray = self._free.pop() if self._free else TensorBuffer(self._shard.tensors)
            try:
                yield tray
            finally:
                self._free.append(tray)


def assemble_model(job: ElasticJob, packed: Sequence[Tensor]) -> nn.Module:
    """The whole model on the CPU, with what servers have ``packed``; what is never trained is as the job makes it.

    A tensor that has several names in the model is kept, and put in, under its first.
    """
    model = build_model(job).to("cpu")
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    with torch.no_grad():
        for names, buffer in zip(list_parts(model, len(packed)), packed, strict=True):
            tray = TensorBuffer([own[name] for name in names], buffer)
            for name, value in zip(names, tray.places, strict=True):
                own[name].copy_(value)
    return model


def save_model(job: ElasticJob, packed: Sequence[Tensor], path: Path) -> None:
    """Write the ``state_dict`` of the whole model; raises OSError."""
    content = io.BytesIO()
    torch.save(assemble_model(job, packed).state_dict(), content)
    write_whole(path, content.getbuffer())
