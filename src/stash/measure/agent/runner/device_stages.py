"""A step's stages as events in a CUDA device's queue, and how far the host was ahead of that queue.

Events come from a pool and are read once they are done. Beside each stands the host's moment at which it was asked
for: where the device comes to an event as soon as it is asked for, it had nothing else left to do, and what it waits
for is the host.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.runner.step_stages import NO_STEP, Mark
from stash.measure.protocol.stamped import DELAY, NUMBER, StepStage

_FIRST = int(StepStage.BETWEEN)
_NO_STAGES = [0.0] * (DELAY - _FIRST)
_MAX_PENDING = 512
"""Steps whose events are not done yet; a host that runs farther ahead loses the oldest."""

_LATE = 200e-6
"""Seconds, at most, from the device's last event to the host's learning of it."""


class DeviceStages:
    """What the queue of a CUDA ``device`` tells of the steps' stages, in place of the host's clock."""

    def __init__(self, device: Any = None) -> None:
        self.device = device
        cuda = sys.modules["torch"].cuda
        self._event, self._captures = cuda.Event, cuda.is_current_stream_capturing
        self._stream = private.current_stream(cuda, device)
        self._pool: list[Any] = []
        self._pending: deque[tuple[list[float], list[Mark]]] = deque()
        self._reached = 0.0
        """Seconds of the device at the last event that was read."""
        self._moments: list[tuple[int, list[tuple[float, float]]]] | None = None
        """Of steps by number: of each boundary the host's moment and the device's, if leads are followed."""

    def record_event(self) -> Any:
        """An event where the calling thread's stream of the device is; ``None`` while a graph is captured."""
        if self._captures():  # an event of a graph tells nothing
            return None
        event = self._pool.pop() if self._pool else self._event(enable_timing=True)
        event.record(self._stream())
        return event

    def close(self, row: list[float], marks: Sequence[Mark]) -> None:
        """A step with this ``row`` ended with the last of its ``marks``, whose event is the next one's first."""
        marks = [mark for mark in marks if mark[-1] is not None]
        if marks:
            self._pending.append((row, marks))
        if len(self._pending) > _MAX_PENDING:
            self._reuse(self._pending.popleft()[1])
            self._moments = None

    def take_finished(self) -> Iterable[list[float]]:
        """Rows of steps that the device has come to the end of, the oldest first, by its own clock."""
        while self._pending and self._pending[0][1][-1][-1].query():
            row, marks = self._pending.popleft()
            row[_FIRST:DELAY] = _NO_STAGES
            moments = []
            for (stage, *_, first), (_, asked, *_, last) in itertools.pairwise(marks):
                seconds = float(first.elapsed_time(last)) / 1e3
                if stage != NO_STEP:
                    row[stage] += seconds
                self._reached += seconds
                moments.append((asked, self._reached))
            if self._moments is not None:
                self._moments.append((int(row[NUMBER]), moments))
            self._reuse(marks)
            yield row

    def _reuse(self, marks: Sequence[Mark]) -> None:
        self._pool += [event for *_, event in marks[:-1]]

    def follow_leads(self) -> None:
        """From now on moments are kept, until the next call."""
        self._moments = []

    def measure_leads(self, now: float, after: int) -> tuple[float, ...]:
        """Of each step ``after`` that number, the most seconds that the host was ahead of the device at a boundary.

        All of the queue is done, and was as of ``now``: the device's clock is set by that, late by what passed since,
        which is at most what the host was ahead at least. None if steps were lost.
        """
        found = [
            [now - (self._reached - reached) - asked for asked, reached in moments]
            for number, moments in self._moments or ()
            if number > after and moments
        ]
        late = min(_LATE, *(min(of_step) for of_step in found)) if found else 0.0
        return tuple(max(of_step) - late for of_step in found)
