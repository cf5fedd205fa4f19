"""A step's stages as events in a CUDA device's queue, and how far the host was ahead of that queue.

Events come from a pool and are read once they are done. Beside each stands the host's moment at which it was asked
for: where the device comes to an event as soon as it is asked for, it had nothing else left to do, and what it waits
for is the host.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeAlias

from stash.measure.agent import private
from stash.measure.protocol.stamped import DELAY, NUMBER, StepStage

_BETWEEN, _OPTIMIZER = int(StepStage.BETWEEN), int(StepStage.OPTIMIZER)
_OF_NO_STEP = -1
"""Between a step's end and the next one's begin, while Stash works."""
_NO_STAGES = [0.0] * (DELAY - _BETWEEN)
_MAX_PENDING = 512
"""Steps whose events are not done yet; a host that runs farther ahead loses the oldest."""

_LATE = 200e-6
"""Seconds, at most, from the device's last event to the host's learning of it."""

Mark: TypeAlias = tuple[int, Any, float]
"""The stage that begins, the event, and the host's moment."""


class DeviceStages:
    """What the queue of a CUDA ``device`` tells of the steps' stages, in place of the host's clock."""

    def __init__(self, device: Any = None) -> None:
        cuda = sys.modules["torch"].cuda
        self._event, self._captures = cuda.Event, cuda.is_current_stream_capturing
        self._stream = private.current_stream(cuda, device)
        self._pool: list[Any] = []
        self._marks: list[Mark] = []
        self._updated = 0
        """So many marks of the step under way came before the end of an update."""
        self._pending: deque[tuple[list[float], list[Mark]]] = deque()
        self._reached = 0.0
        """Seconds of the device at the last event that was read."""
        self._moments: list[tuple[int, list[tuple[float, float]]]] | None = None
        """Of steps by number: of each boundary the host's moment and the device's, if leads are followed."""

    def mark(self, stage: int, now: float) -> None:
        """A stage begins where the calling thread's stream of the device is; while a graph is captured, none does."""
        if self._captures():  # an event of a graph tells nothing
            return
        event = self._pool.pop() if self._pool else self._event(enable_timing=True)
        event.record(self._stream())
        self._marks.append((stage, event, now))

    def begin(self, now: float) -> None:
        """The next step begins here: what the queue waited for since the last one's end belongs to none."""
        self._marks = [(_OF_NO_STEP, event, asked) for _, event, asked in self._marks[-1:]]
        self._updated = 0
        self.mark(_BETWEEN, now)

    def put_off(self) -> None:
        """The stage that began last had not begun yet."""
        if self._marks:
            self._pool.append(self._marks.pop()[1])

    def rename(self, before: int, after: int) -> None:
        """What the step under way has of the one stage since its last update is of the other."""
        self._rename(slice(self._updated, None), before, after)

    @property
    def marks(self) -> int:
        """So many of the step under way so far."""
        return len(self._marks)

    def rename_from(self, mark: int, before: int, after: int) -> None:
        """What the step under way has of the one stage since it had so many marks is of the other."""
        self._rename(slice(mark, None), before, after)

    def update_ends(self, beside: bool) -> None:
        """An update ends with the last mark; ``beside`` the counted one it is no pause before the step."""
        self._updated = max(0, len(self._marks) - 1)
        if beside:
            self._rename(slice(self._updated), _BETWEEN, _OPTIMIZER)

    def _rename(self, where: slice, before: int, after: int) -> None:
        self._marks[where] = [
            (after if stage == before else stage, event, asked) for stage, event, asked in self._marks[where]
        ]

    def close(self, row: list[float]) -> None:
        """A step with this ``row`` ended with the last mark."""
        self._pending.append((row, self._marks))
        self._marks, self._updated = self._marks[-1:], 0
        if len(self._pending) > _MAX_PENDING:
            self._reuse(self._pending.popleft()[1])
            self._moments = None

    def done(self) -> Iterable[list[float]]:
        """Rows of steps that the device has come to the end of, the oldest first, by its own clock."""
        while self._pending and self._pending[0][1][-1][1].query():
            row, marks = self._pending.popleft()
            row[_BETWEEN:DELAY] = _NO_STAGES
            moments = []
            for (stage, first, _), (_, last, asked) in itertools.pairwise(marks):
                seconds = float(first.elapsed_time(last)) / 1e3
                if stage != _OF_NO_STEP:
                    row[stage] += seconds
                self._reached += seconds
                moments.append((asked, self._reached))
            if self._moments is not None:
                self._moments.append((int(row[NUMBER]), moments))
            self._reuse(marks)
            yield row

    def _reuse(self, marks: list[Mark]) -> None:
        """Of a step that is over, the oldest there was; its last event may be the next one's first."""
        following = self._pending[0][1] if self._pending else self._marks
        shared = bool(following) and following[0][1] is marks[-1][1]
        self._pool += [event for _, event, _ in (marks[:-1] if shared else marks)]

    def follow_leads(self) -> None:
        """From now on moments are kept, until the next call."""
        self._moments = []

    def leads(self, now: float, after: int) -> tuple[float, ...]:
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
