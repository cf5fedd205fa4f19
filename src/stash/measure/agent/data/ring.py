"""The batches that replays hand out: copies of a round's real ones, in host memory or on the device, within a limit.

Replays hand out fresh containers around the same tensors, because scripts pop keys from their batches; scripts that
also write into the tensors get clones. Either is made before a block begins: made in a timed step, it would count as
compute. Which batches a round has, and how many a block takes of them, is not known here.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

from stash.measure.agent.data import batches
from stash.measure.agent.private import version

_LIMIT = 512 << 20
_OF_WARM_UP = 4
"""Batches kept before the first round."""
_LOOKS = 4
"""Batches handed out before it is judged whether the script writes into them."""
_SHARE_OF_DEVICE = 0.1
"""Of a device's free memory, for the batches kept on it."""


class Shelf:
    """Batches in one place, host or device, and the copies of them that a block is handed.

    Until ``judge`` has seen that the script does not write into what it is handed, the copies are clones.
    """

    def __init__(self) -> None:
        self.originals: list[Any] = []
        self.written_to: bool | None = None
        """Whether the script was seen writing into what it was handed; ``None`` while unknown."""
        self._turn = 0
        self._ready: deque[tuple[Any, list[Any]]] = deque()
        self._looked_at = 0
        self._handed: list[tuple[Any, Any]] = []

    def make_ready(self, count: int, first: int, limit: int) -> bool:
        """``count`` copies, beginning with that of batch ``first``; False if clones of all exceed the limit."""
        self._turn = first
        room = limit
        for turn in range(first, first + count):
            if self.written_to is not False:
                room -= batches.count_bytes(self._original(turn))
            if room < 0:
                return not self.written_to
            self._ready.append(self._copy_batch(turn))
        return True

    def drop_copies(self) -> None:
        """The block is over; what was not handed out says nothing of the script."""
        self._ready.clear()
        self._looked_at = 0

    def next_batch(self) -> Any:
        """The batch whose turn it is."""
        batch, states = self._ready.popleft() if self._ready else self._copy_batch(self._turn)
        self._turn += 1
        self._handed += states
        return batch

    def judge(self) -> None:
        """Decide once something was handed out; a script that wrote into it goes on being handed clones."""
        if self.written_to is None and self._handed:
            self.written_to = any(_leaf_state(leaf) != before for leaf, before in self._handed)
            self._handed = []

    def _original(self, turn: int) -> Any:
        return self.originals[turn % len(self.originals)]

    def _copy_batch(self, turn: int) -> tuple[Any, list[Any]]:
        """A copy, and the states of what is in it if the script is still to be judged by them."""
        if self.written_to is False:
            return batches.rewrap_batch(self._original(turn)), []
        clones = batches.copy_batch(self._original(turn))
        if self.written_to or self._looked_at >= _LOOKS:
            return clones, []
        self._looked_at += 1
        return clones, [(leaf, _leaf_state(leaf)) for leaf in batches.iter_leaves(clones)]


def _leaf_state(leaf: Any) -> Any:
    """What differs after a write: a tensor's version, an array's content."""
    if batches.is_array(leaf):
        return leaf.tobytes()
    parts = (leaf, leaf.values()) if leaf.layout is sys.modules["torch"].jagged else (leaf,)
    return [(version(part), part.requires_grad) for part in parts]


class Ring:
    """Some real batches, replayed in turn; ``limit_bytes`` bounds the memory that they take, and clones of them."""

    def __init__(self, limit_bytes: int = _LIMIT) -> None:
        self.limit = limit_bytes
        self._host, self._device = Shelf(), Shelf()
        self._in_use = self._host

    def __len__(self) -> int:
        return len(self.batches)

    @property
    def batches(self) -> list[Any]:
        """The batches themselves, not to be written to."""
        return self._host.originals

    def offer(self, batch: Any) -> None:
        """Keep a copy of one of the warm-up's, while there is room."""
        kept = self._host.originals
        if len(kept) < _OF_WARM_UP and (
            not kept or (len(kept) + 1) * batches.count_bytes(batch) <= self.limit
        ):
            kept.append(batches.copy_batch(batch))

    def refill(self, real: Iterable[Any], device: Any = None) -> bool:
        """Keep copies of these instead, read to their end; False if some of them found no room, but the first does.

        ``device``: they will be put there too. Without any the old ones stay.
        """
        room, whole = 0, True
        for number, batch in enumerate(real):
            if number == 0:
                self.batches.clear()
                room = self._room(batch, device)
            room -= batches.count_bytes(batch)
            whole = whole and (number == 0 or room >= 0)
            if whole:
                self.batches.append(batches.copy_batch(batch))
        return whole

    def _room(self, batch: Any, device: Any) -> int:
        """Bytes that batches like this one may take, wherever they are or will be."""
        places = batches.list_devices(batch) + ([] if device is None else [device])
        return min([self.limit, *map(_share_of, places)])

    def begin(self, count: int, first: int, device: Any = None) -> bool:
        """Make ready what a block is handed: ``count`` batches from the one at ``first`` on, on ``device`` if any.

        False if the script writes into batches, and there is no room for copies of so many.
        """
        self.end_block()
        self._in_use = self._host
        if device is not None:
            self._in_use = self._device
            self._device.originals[:] = [batches.move_batch(each, device) for each in self.batches]
        return self._in_use.make_ready(count, first, self._room(self.batches[0], device))

    def end_block(self) -> None:
        """No block replays for now: what was made ready for one is dropped."""
        self.judge()
        self._device.originals.clear()
        for shelf in (self._host, self._device):
            shelf.drop_copies()

    def next_batch(self) -> Any:
        """The next batch of a block."""
        return self._in_use.next_batch()

    def copy_first(self) -> Any:
        """A batch for what is no block's."""
        return batches.copy_batch(self.batches[0])

    def judge(self) -> None:
        """See whether the script wrote into what it was handed so far."""
        self._in_use.judge()


def _share_of(device: Any) -> int:
    """Bytes of an accelerator's memory that batches may take; none where how much is free is unknown."""
    tell = getattr(getattr(sys.modules["torch"], device.type, None), "mem_get_info", None)
    return int(_SHARE_OF_DEVICE * tell(device)[0]) if tell is not None else 0
