"""The orders: what the launcher asks of the agents of one launch, as a small JSON file.

The environment variable ``STASH_ORDERS`` names the file; every Python process of the job finds it there.
Standard library only, because this is read before the job's own first import.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path

from stash.measure.run.fields import made
from stash.measure.run.folder import RunFolder

VARIABLE = "STASH_ORDERS"


@dataclass(frozen=True)
class Orders:
    """One launch's orders. ``folder`` is its folder on this machine; times are in seconds."""

    folder: str
    rungs: tuple[str, ...]
    budget: float
    began: float = 0.0
    """When the run began (Unix time): files written before are the user's."""
    launch: int = 0
    first_round: int = 0
    rounds: int | None = None
    """Stop by itself after so many rounds; ``None``: only when the ``stop`` file appears."""
    most_steps: int | None = None
    """No block longer than this, for loops that end after few steps."""
    endless: bool = False
    """Let the training loop never run out of batches: its own epochs are too short to be measured in."""
    isolated: bool = False
    """Never switch the scope: this launch measures its rungs as it was started."""
    may_isolate: bool = True
    """Whether the launcher can start the job again, in other sizes."""
    gang: tuple[int, int] | None = None
    """(index, size) of this launch among those of the same rung: which share of the machine is its own."""
    crowd: int = 1
    """How many launches run at the same time; they start their blocks together."""
    pin: bool = False
    data_root: str | None = None
    keep_logging: bool = False
    """Leave experiment trackers as the job has them."""
    host: dict[str, object] = field(default_factory=dict)
    """The launcher's description of this machine, sent along to the leader."""

    @property
    def files(self) -> RunFolder:
        """The files of this launch."""
        return RunFolder(Path(self.folder))

    def write(self) -> Path:
        """Put the orders into the launch's folder; the value is their file."""
        path = self.files.orders
        path.write_text(json.dumps(asdict(self)))
        return path


@lru_cache(maxsize=1)
def current() -> Orders | None:
    """The orders this process runs under, or ``None`` outside a profile."""
    path = os.environ.get(VARIABLE)
    return read(Path(path)) if path else None


def read(path: Path) -> Orders | None:
    """The orders in a file; ``None`` where there are none."""
    try:
        return made(Orders, json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):  # it is gone, or not what was written
        return None
