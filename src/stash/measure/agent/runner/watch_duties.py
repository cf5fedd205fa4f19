"""What a watched rank does beside stamping: bring watchers together, pause, trace steps, follow some in full.

Watchers meet as launchers do: each says where it can be reached, and the ranks carry the invitation of node 0's to
the others, through the store that the job's ranks met at. What is asked of a rank it finds by one comparison a step.
While it is paused or traced it leaves no rows, so that no window has those steps.

Of a step that is followed, each boundary that it came to is told, and the collectives that C++ issued. On such a step
the boundary's method of ``Stamps`` is this module's; on all others nothing here is called. A process group counts
what is issued through it, by whomever: what it counted outside calls of ``torch.distributed`` and beyond
DistributedDataParallel's own buckets was issued by C++ (functional collectives, compiled graphs), and its time is in
the stage that it fell into. Where PyTorch's flight recorder is on (``TORCH_FR_BUFFER_SIZE``) it is asked instead, and
tells seconds where it times them.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import get_ident
from typing import Any

from stash.core.ledger_rows import BACKWARD, FORWARD, INPUT, LOOP, OPTIMIZER, OTHER
from stash.measure.agent import private
from stash.measure.agent.runner.stack_looks import Places
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps import replicas
from stash.measure.linux.interfaces import own_address
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import LINES, Invitation, Neighbours, TraceRequest, leave_whole
from stash.measure.protocol.stamped import MAX_PIECES, StepStage

_KEY = "stash/watchers"
_LOOKS_SECONDS = 0.5
_MEETING_SECONDS = 120.0
EVERY = 32
_COLLECTIVE = int(StepStage.COLLECTIVE)
_LINES_SECONDS = 5.0
ROW_OF = {
    int(StepStage.BETWEEN): LOOP, int(StepStage.INPUT): INPUT, int(StepStage.FORWARD): FORWARD,
    int(StepStage.BACKWARD): BACKWARD, int(StepStage.OPTIMIZER): OPTIMIZER,
}  # fmt: skip
"""What a ledger calls a stage."""
_RECORDERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_LOOKS_EVERY = 30
"""Samples between two looks at the recorder: copying its entries takes milliseconds."""


class WatchersMeeting:
    """Local rank 0's part in it; asked after steps until it is over."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._leads = RunFolder(folder), node == 0
        Neighbours(node, own_address()).write(self._folder)
        self._next, self._until = 0.0, time.monotonic() + _MEETING_SECONDS
        self.over = False

    def step(self) -> None:
        """Look whether the invitation has come; no question waits for another node."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next, self.over = now + _LOOKS_SECONDS, now > self._until
        store = private.default_store()
        if self._leads:
            invitation = Invitation.of(self._folder)
            if invitation is not None:
                store.set(_KEY, json.dumps(asdict(invitation)))
                self.over = True
        elif store.check([_KEY]):
            Invitation(**json.loads(store.get(_KEY))).bring(self._folder)
            self.over = True


@dataclass
class StepTrace:
    """Traces steps with torch.profiler, from where it is started until ``steps`` have ended."""

    wanted: TraceRequest
    rank: int
    first: int
    """The step that begins now."""
    _left: int = 0
    _profiler: Any = field(default=None, repr=False)

    def start(self) -> None:
        import torch.profiler

        kinds = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=kinds)
        self._profiler.start()
        self._left = self.wanted.steps

    def step(self) -> bool:
        """A step ended; whether it was the last of them, and the trace is written."""
        self._left -= 1
        if self._left > 0:
            return False
        self._profiler.stop()
        folder = Path(self.wanted.folder)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"rank{self.rank}.step{self.first}.json.gz"
        draft = target.with_name(f"{os.getpid()}.{target.name}")
        self._profiler.export_chrome_trace(str(draft))
        draft.rename(target)
        return True


class ScriptLines:
    """For some seconds: at which lines of the script the training thread is, and for how long in a step."""

    def __init__(self, stamps: Stamps, folder: Path, rank: int) -> None:
        self._stamps, self._file = stamps, folder / f"{LINES}.{rank}.json"
        self._first, self._until = stamps.steps, stamps.now() + _LINES_SECONDS
        self._places = Places(get_ident(), lambda: ROW_OF.get(int(stamps.ring.live[0]), OTHER))
        self._places.start()

    def step(self) -> bool:
        """A step ended; whether it was the last of them, and the lines are told."""
        steps = self._stamps.steps - self._first
        if self._stamps.now() < self._until or steps < 1:
            return False
        self._places.stop()
        leave_whole(self._file, [{**row, "seconds": row["seconds"] / steps} for row in self._places.rows()])
        return True


class StepSample:
    """Follows ``stamps`` through single steps."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._pieces: list[float] = []
        self._since = 0.0
        self._number, self._doing = -1, int(StepStage.BETWEEN)
        self._issued = self._inside = self._seen = 0
        self._samples = 0
        self.recorded = any(os.environ.get(name, "0").strip() not in ("", "0") for name in _RECORDERS)

    def begin(self) -> None:
        """The step that begins now is followed."""
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized():
            return
        self._pieces, self._since, self._number = [], self._stamps.now(), self._stamps.steps + 1
        self._issued, self._seen, self._doing = _issued(), 0, int(StepStage.BETWEEN)
        self._stamps._move = self._move  # type: ignore[method-assign]

    def _move(self, stage: int, now: float) -> None:
        before, self._doing = self._doing, stage
        self._pieces += (before, now - self._since)
        self._since = now
        if stage == _COLLECTIVE and before != _COLLECTIVE:
            self._inside = _issued()
        elif before == _COLLECTIVE and stage != _COLLECTIVE:
            self._seen += _issued() - self._inside
        Stamps._move(self._stamps, stage, now)

    def end(self, now: float) -> None:
        """The followed step ended ``now``, and is told of; nothing if none is followed."""
        if "_move" not in vars(self._stamps):
            return
        del self._stamps._move
        ring, last = self._stamps.ring, int(StepStage.OPTIMIZER)
        self._pieces += (last, now - self._since)
        if (
            _COLLECTIVE in self._pieces[::2]
            and len(self._pieces) <= 2 * MAX_PIECES
            and self._number == self._stamps.steps
        ):
            ring.write_pieces(self._number, self._pieces)
        issued = _issued() - self._issued
        unseen = issued - self._seen - sum(map(_of_replica, replicas.modules()))
        if unseen > 0:
            ring.name_unseen(f"{unseen} {issued}{self._recorder() if self.recorded else ''}")
        self._samples += 1

    def _recorder(self) -> str:
        """Seconds of one collective that the flight recorder timed, with a space before; else nothing."""
        if self._samples % _LOOKS_EVERY:
            return ""
        count, seconds = by_others(pickle.loads(private.recorded_collectives())["entries"])
        return f" {seconds / count:.9f}" if count and seconds else ""


def _issued() -> int:
    return sum(private.sequence_numbers().values())


def _of_replica(model: Any) -> int:
    """Collectives of a step that DistributedDataParallel itself issues: its buckets, and buffers by their type."""
    buffers = len({buffer.dtype for buffer in model.module.buffers()}) if model.broadcast_buffers else 0
    return len(private.bucket_bytes(model)) + buffers


def by_others(entries: Iterable[Mapping[str, Any]]) -> tuple[int, float]:
    """(count, seconds) of the flight recorder's entries that neither ``torch.distributed`` nor DDP issued.

    Seconds of those that it timed (NCCL, with ``TORCH_NCCL_ENABLE_TIMING``); 0 if it timed none.
    """
    count, seconds, has_replicas = 0, 0.0, bool(replicas.modules())
    for entry in entries:
        frames = [(str(frame["filename"]), str(frame["name"])) for frame in entry.get("frames", ())]
        files = [file for file, _ in frames]
        if any(file.endswith("distributed_c10d.py") for file in files):
            continue
        through_op = any(file.endswith(("torch/_ops.py", "_functional_collectives.py")) for file in files)
        if has_replicas and not through_op:
            continue
        count += 1
        seconds += float(entry.get("duration_ms") or 0.0) / 1e3
    return count, seconds
