"""One step in 32 of a watched rank in full: each boundary that it came to, and the collectives that C++ issued.

On such a step the boundary's method of ``Stamps`` is this module's; on all others nothing here is called. A process
group counts what is issued through it, by whomever: what it counted outside calls of ``torch.distributed`` and beyond
DistributedDataParallel's own buckets was issued by C++ (functional collectives, compiled graphs), and its time is in
the stage that it fell into. Where PyTorch's flight recorder is on (``TORCH_FR_BUFFER_SIZE``) it is asked instead, and
tells seconds where it times them.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from stash.measure.agent import private
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps.stages import REPLICAS
from stash.measure.protocol.stamped import MAX_PIECES, StepStage

EVERY = 32
_COLLECTIVE, _EXCHANGE = int(StepStage.COLLECTIVE), int(StepStage.EXCHANGE)
_RECORDERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_LOOKS_EVERY = 30
"""Samples between two looks at the recorder: copying its entries takes milliseconds."""


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
        unseen = issued - self._seen - sum(map(_of_replica, REPLICAS))
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
    count, seconds = 0, 0.0
    for entry in entries:
        frames = [(str(frame["filename"]), str(frame["name"])) for frame in entry.get("frames", ())]
        files = [file for file, _ in frames]
        if any(file.endswith("distributed_c10d.py") for file in files):
            continue
        through_op = any(file.endswith(("torch/_ops.py", "_functional_collectives.py")) for file in files)
        if REPLICAS and not through_op:
            continue
        count += 1
        seconds += float(entry.get("duration_ms") or 0.0) / 1e3
    return count, seconds
