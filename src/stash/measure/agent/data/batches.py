"""Batches as values: how many samples and bytes one holds, and safe copies to replay.

A batch is whatever a loader yields: tensors in tuples, lists, dictionaries, or objects carrying them as
attributes. Replays hand out fresh containers around the same tensors, because scripts pop keys from their
batches; scripts that also write into the tensors get clones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stash.measure.agent.private import version


def rebuilt(batch: Any, change: Callable[[Any], Any]) -> Any:
    """``batch`` with fresh containers and ``change`` applied to every tensor in it."""
    import torch

    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, tuple):
        parts = [rebuilt(part, change) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if isinstance(batch, list):
        return [rebuilt(part, change) for part in batch]
    if isinstance(batch, Mapping):
        fresh = {key: rebuilt(value, change) for key, value in batch.items()}
        if type(batch) is dict:
            return fresh
        again: Any = copy.copy(batch)
        again.update(fresh)
        return again
    inner = getattr(batch, "__dict__", None)
    if inner and any(isinstance(value, torch.Tensor) for value in inner.values()):
        again = copy.copy(batch)
        for key, value in inner.items():
            if isinstance(value, torch.Tensor):
                setattr(again, key, change(value))
        return again
    return batch


def tensors(batch: Any) -> Iterator[Any]:
    """The tensors inside a batch, in order."""
    found: list[Any] = []

    def note(tensor: Any) -> Any:
        found.append(tensor)
        return tensor

    rebuilt(batch, note)
    return iter(found)


def samples(batch: Any) -> int | None:
    """How many samples a batch holds: the length of its first tensor's first dimension, or of its first list."""
    for tensor in tensors(batch):
        if tensor.dim() > 0:
            return int(tensor.shape[0])
    if isinstance(batch, (list, tuple)) and batch and isinstance(batch[0], (list, tuple)):
        return len(batch[0])
    return None


def size(batch: Any) -> int:
    """Bytes of the tensors in a batch."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(batch))


def kept(batch: Any) -> Any:
    """A copy that stays valid: out of the workers' shared memory, pinned if the original was."""
    return rebuilt(batch, _copied)


def _copied(tensor: Any) -> Any:
    again = tensor.detach().clone()
    return again.pin_memory() if tensor.is_pinned() else again


class Shelf:
    """Batches in one place (host or device) and whether the script may be handed them as they are.

    Until ``judge`` has seen that it does not write into them, it is handed clones.
    """

    def __init__(self, originals: list[Any]) -> None:
        self.originals = originals
        self._handed: list[tuple[Any, int]] = []
        self._judged = False
        self.written_to = False

    def take(self, turn: int) -> Any:
        """The batch whose turn it is."""
        batch = self.originals[turn % len(self.originals)]
        if self._judged and not self.written_to:
            return rebuilt(batch, lambda tensor: tensor)
        clones = rebuilt(batch, _copied)
        if not self._judged:
            self._handed += [(tensor, version(tensor)) for tensor in tensors(clones)]
        return clones

    def judge(self) -> None:
        """Decide once something was handed out; a script that wrote into it goes on being handed clones."""
        if not self._judged and self._handed:
            self.written_to = any(version(tensor) != before for tensor, before in self._handed)
            self._judged, self._handed = True, []


class Ring:
    """A few real batches, replayed in turn. ``limit_bytes`` bounds the host memory they take together."""

    def __init__(self, capacity: int = 4, limit_bytes: int = 512 << 20) -> None:
        self.capacity, self.limit = capacity, limit_bytes
        self._host = Shelf([])
        self._device: Shelf | None = None
        self._turn = 0

    def __len__(self) -> int:
        return len(self._host.originals)

    @property
    def written_to(self) -> bool:
        """Whether the script was seen writing into batches from host memory."""
        return self._host.written_to

    def peek(self) -> Any:
        """The first batch kept."""
        return self._host.originals[0]

    def offer(self, batch: Any) -> None:
        """Keep a copy of ``batch`` while there is room."""
        room = self.limit // max(1, size(batch))
        if len(self) < min(self.capacity, max(1, room)):
            self._host.originals.append(kept(batch))

    def next(self, resident: bool, device: Any) -> Any:
        """The next batch to replay, from host memory, or the one kept on ``device``."""
        self._turn += 1
        if not resident:
            return self._host.take(self._turn)
        if self._device is None:  # a single one: device memory may be nearly full
            self._device = Shelf([rebuilt(self.peek(), lambda tensor: tensor.to(device))])
        return self._device.take(self._turn)

    def judge(self) -> None:
        """See whether the script wrote into what it was handed so far."""
        for shelf in (self._host, self._device):
            if shelf is not None:
                shelf.judge()
