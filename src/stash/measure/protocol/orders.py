"""What launchers and watchers ask of agents, how launchers of several nodes meet, tracebacks without Stash's frames.

The environment variable ``STASH_ORDERS`` names the file of orders; every Python process of the job finds it there.
Standard library only, because it is read before the job's own first import.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.wire import build_record, register_record

VARIABLE = "STASH_ORDERS"
ATTACHABLE = "STASH_ATTACHABLE"
"""Variable of a process that a watcher may listen to later."""


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
    whole_side_work: bool = False
    """Let evaluations read all their batches, and write checkpoints whole: with less the script fails."""
    first_steps: int | None = None
    """Time so many of the job's first steps, as typed, at most; 0: a launch before did."""
    may_start_again: bool = True
    """Whether the launcher can start the job again, in other sizes."""
    pin: bool = False
    data_root: str | None = None
    keep_logging: bool = False
    """Leave experiment trackers as the job has them."""
    traces: str | None = None
    """Folder into which torch.profiler records some steps under the top rung."""
    watched: bool = False
    """The run is only listened to: every rank leaves its stamped steps in a ring in the folder."""
    trial: dict[str, object] | None = None
    """No ladder: the job as it was typed, with these settings changed (``agent/wraps/trial_changes``)."""
    passing: bool = False
    """Files that the job makes once it trains go again at its end, too; what it makes before, like data, stays."""
    trial_seconds: float = 0.0
    trial_steps: int = 0
    """How long a trial times steps, and how many at most."""
    trial_bare: bool = False
    """Once it has recorded some steps, a trial leaves all others alone but for when they end."""
    host: dict[str, object] = field(default_factory=dict)
    """The launcher's description of this machine, sent along to the leader."""

    @property
    def files(self) -> RunFolder:
        """The files of this launch."""
        return RunFolder(Path(self.folder))

    def write(self) -> Path:
        """Put the orders into the launch's folder; the value is their file, never seen half written."""
        write_json_whole(self.files.orders, asdict(self))
        return self.files.orders


_OVERRUN = 1.1
"""Of the budget: a round that ends by then is not given up."""
_OVERRUN_OF_THIRD = 1.5
"""Likewise up to the third round, since fewer have no interval, and so no verdict."""
FEWEST_ROUNDS = 3
"""As many as an interval needs."""


def latest_end(rounds: int, budget: float) -> float:
    """Seconds of measuring at which the round that follows so many is given up."""
    return (_OVERRUN if rounds >= FEWEST_ROUNDS else _OVERRUN_OF_THIRD) * budget


def another_round_fits(spent: float, took: Sequence[float], budget: float) -> bool:
    """Whether a round that begins after ``spent`` seconds will end in time, when those before it took so long.

    It is expected to take as long as the quickest: others learned how long blocks must be, or were disturbed.
    """
    each, missing = min(took, default=0.0), FEWEST_ROUNDS - len(took)
    in_time = spent <= budget and spent + each <= _OVERRUN * budget
    return in_time or (missing > 0 and spent + missing * each <= _OVERRUN_OF_THIRD * budget)


@lru_cache(maxsize=1)
def current_orders() -> Orders | None:
    """The orders this process runs under, or ``None`` outside a profile."""
    path = os.environ.get(VARIABLE)
    return load_orders(Path(path)) if path else None


def load_orders(path: Path) -> Orders | None:
    """The orders in a file; ``None`` where there are none."""
    try:
        return build_record(Orders, json.loads(path.read_text()))
    except (
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ):  # it is gone, or not what was written
        return None


# Launchers of a job over several nodes find each other by three small files in each launch's folder. Ranks that find
# themselves on several nodes write where their launcher is to listen; before that, it opens nothing. It answers with
# an invitation, and the ranks, who know each other already, carry that of rank 0's launcher to the others' folders as
# the meeting. Nothing here opens a connection.

T = TypeVar("T")


@dataclass(frozen=True)
class Neighbours:
    """Sent by the ranks to their launcher: the number of this node, and its address on the way to the others."""

    node: int
    address: str

    def write(self, folder: RunFolder) -> bool:
        """Write it for this folder's launcher; False if another rank did so before."""
        return _write(self, folder.neighbours)

    @classmethod
    def load(cls, folder: RunFolder) -> Neighbours | None:
        """None until a rank wrote it whole."""
        return _load_record(cls, folder.neighbours)


@register_record
@dataclass(frozen=True)
class Invitation:
    """Where a launcher listens for others, by TCP, and the key by which it knows them."""

    host: str
    port: int
    key: str

    def write(self, folder: RunFolder) -> None:
        """Write it for the ranks of this folder."""
        write_json_whole(folder.invitation, asdict(self))

    def write_meeting(self, folder: RunFolder) -> bool:
        """Write it as the meeting, for this folder's launcher; False if another rank did so before."""
        return _write(self, folder.meeting)

    @classmethod
    def load(cls, folder: RunFolder) -> Invitation | None:
        """The invitation of the launcher whose folder this is; None if it made none."""
        return _load_record(cls, folder.invitation)

    @classmethod
    def load_meeting(cls, folder: RunFolder) -> Invitation | None:
        """The invitation of rank 0's launcher; None until a rank brought it."""
        return _load_record(cls, folder.meeting)


def _write(record: Neighbours | Invitation, path: Path) -> bool:
    try:
        with path.open("x") as file:
            file.write(json.dumps(asdict(record)))
    except FileExistsError:
        return False
    return True


def _load_record(kind: type[T], path: Path) -> T | None:
    try:
        return kind(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def write_json_whole(path: Path, content: object) -> None:
    """Leave a small file of JSON for another process, which never finds half of it."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(json.dumps(content))
    draft.rename(path)


LINES = "lines"
"""How files begin in which ranks say where they are: ``lines.3.json``."""
_REQUEST = "request.json"
"""What a run's watchers ask of its ranks, beside their rings, in which it is counted how often they asked."""


@dataclass(frozen=True)
class TraceRequest:
    """Steps to be traced."""

    steps: int
    ranks: tuple[int, ...]
    """None: all."""
    folder: str
    """Where traces go; it is made."""


@dataclass(frozen=True)
class WatchRequest:
    """What watchers want of ranks; a later one replaces an earlier one."""

    number: int
    paused: bool = False
    trace: TraceRequest | None = None
    lines: tuple[int, ...] = ()
    """Ranks that say at which lines of the script their training thread is."""
    recorders: str = ""
    """The folder that all ranks write their flight recorders into; it is made."""

    def write(self, folder: Path) -> None:
        write_json_whole(folder / _REQUEST, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> WatchRequest:
        """Raises OSError, ValueError, TypeError."""
        return build_record(cls, json.loads((folder / _REQUEST).read_text()))


_FRAME = re.compile(
    r"""^[ ]+File[ ]"[^"]*/stash/measure/(?:agent/|protocol/|linux/|torchrun\.py)[^"]*",[ ]line[ ]\d+,[ ]in[ ].*\n
        (?:[ ]{4}.*\n)*                          # its source
        (?=[ ]+File[ ]"|KeyboardInterrupt)       # unless it is the last: an interrupt strikes anywhere""",
    re.M | re.X,
)


def strip_wraps(text: str) -> str:
    """A traceback without them, and without those that it quotes from loader workers."""
    return _FRAME.sub("", text)
