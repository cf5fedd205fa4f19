"""What is known of a training from afar: the lines that its head writes, and the last of its updates.

Believes no line to be whole or new: what follows the head may break off and begin again. Pure but for reading a file;
how the head writes is ``stash.spot.train.run_orders``.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stash.spot.records.runs import LOSS_WINDOW, mean_loss

_MIN_UPDATES = 3
"""Of one worker, that show its speed."""


@dataclass
class FollowedLog:
    """A growing file of JSON lines, written from its beginning again whenever what fills it is started again."""

    path: Path
    _read: int = 0
    """Lines that were taken."""

    def news(self) -> Iterator[dict[str, Any]]:
        """The messages since the last call; what ssh or tail have written between them is left out."""
        try:
            text = self.path.read_text(errors="replace")
        except OSError:
            return
        messages = []
        for line in text.split("\n")[:-1]:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(message, dict) and "what" in message:
                messages.append(message)
        yield from messages[self._read :]
        self._read = max(self._read, len(messages))


@dataclass(frozen=True)
class TrainingProgress:
    """How far an asynchronous training is."""

    updates: int = 0
    loss: float | None = None
    speeds: dict[str, float] = field(default_factory=dict)
    """Updates per second of each worker that made some lately."""

    @classmethod
    def of(cls, printed: str) -> TrainingProgress | None:
        """By what ``tasks.progress`` prints: how many updates, and the last of them; ``None`` of anything else."""
        count, _, rest = printed.partition("\n")
        if not count.strip().isdecimal():
            return None
        rows = []
        for line in rest.splitlines():
            try:
                row = json.loads(line)
                rows.append((float(row["seconds"]), str(row["worker"]), int(row["samples"]), float(row["loss"])))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
        last = [(row[3], row[2]) for row in rows[-LOSS_WINDOW:]]
        loss = mean_loss(last) if len(last) == LOSS_WINDOW and any(samples for _, samples in last) else None
        moments: dict[str, list[float]] = defaultdict(list)
        for seconds, worker, _, _ in rows:
            moments[worker].append(seconds)
        speeds = {
            worker: (len(at) - 1) / (at[-1] - at[0])
            for worker, at in moments.items()
            if len(at) >= _MIN_UPDATES and at[-1] > at[0]
        }
        return cls(int(count), None if loss is None or math.isnan(loss) else loss, speeds)

    def speeds_by_type(self, types: dict[str, str | None]) -> dict[str, float]:
        """The mean speed of one worker of each type; ``types`` by worker's name."""
        found: dict[str, list[float]] = defaultdict(list)
        for worker, speed in self.speeds.items():
            kind = types.get(worker)
            if kind is not None:
                found[kind].append(speed)
        return {name: sum(each) / len(each) for name, each in found.items()}
