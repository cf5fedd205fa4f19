"""What is seen of a training from afar: the lines that its head writes, and the last of its updates.

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

_FEWEST = 3
"""Updates of one worker that tell its speed."""


@dataclass
class ToldLines:
    """A growing file of JSON lines, written from its beginning again whenever what fills it is started anew."""

    path: Path
    _seen: int = 0
    """Lines that were taken."""

    def news(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text(errors="replace")
        except OSError:
            return
        lines = [found for line in text.split("\n")[:-1] if (found := _object(line)) is not None]
        yield from lines[self._seen :]
        self._seen = max(self._seen, len(lines))


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None  # of ssh, or of tail
    return found if isinstance(found, dict) and "what" in found else None


@dataclass(frozen=True)
class TrainingSight:
    """How far it is."""

    updates: int = 0
    loss: float | None = None
    speeds: dict[str, float] = field(default_factory=dict)
    """Updates per second of each worker that was seen lately."""


def sight(printed: str) -> TrainingSight | None:
    """Of what ``tasks.progress`` prints: how many updates, and the last of them; ``None`` of anything else."""
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
    return TrainingSight(int(count), None if loss is None or math.isnan(loss) else loss, _speeds(rows))


def _speeds(rows: list[tuple[float, str, int, float]]) -> dict[str, float]:
    moments: dict[str, list[float]] = defaultdict(list)
    for seconds, worker, _, _ in rows:
        moments[worker].append(seconds)
    return {
        worker: (len(at) - 1) / (at[-1] - at[0])
        for worker, at in moments.items()
        if len(at) >= _FEWEST and at[-1] > at[0]
    }


def by_type(speeds: dict[str, float], types: dict[str, str]) -> dict[str, float]:
    """The mean speed of one worker of each type; ``types`` by worker's name."""
    found: dict[str, list[float]] = defaultdict(list)
    for worker, speed in speeds.items():
        if worker in types:
            found[types[worker]].append(speed)
    return {name: sum(each) / len(each) for name, each in found.items()}
