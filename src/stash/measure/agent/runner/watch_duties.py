"""What a watched rank does beside stamping: bring watchers together, pause, trace steps, count collectives.

Watchers meet as launchers do: each says where it can be reached, and the ranks carry the invitation of node 0's to
the others, through the store that the job's ranks met at. What is asked of a rank it finds by one comparison a step.
While it is paused or traced it leaves no rows, so that no window has those steps.

Of a step that is followed, the collectives that C++ issued are told. On such a step this module observes ``Stamps``;
on all others nothing here is called. A process group counts what is issued through it,
by whomever: what it counted outside calls of ``torch.distributed`` and beyond DistributedDataParallel's own buckets
was issued by C++ (functional collectives, compiled graphs), and its time is in the stage that it fell into. Where
PyTorch's flight recorder is on (``TORCH_FR_BUFFER_SIZE``) it is asked instead, and tells seconds where it times them.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

from stash.core.ledger_rows import BACKWARD, FORWARD, INPUT, LOOP, OPTIMIZER, OTHER
from stash.measure.agent import private
from stash.measure.agent.runner.stack_looks import Places
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.script import Listener
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.stages import BatchCopies, CalledModels
from stash.measure.linux.interfaces import own_address
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.orders import (
    LINES,
    Invitation,
    Neighbours,
    TraceRequest,
    WatchRequest,
    write_json_whole,
)
from stash.measure.protocol.stamped import StepStage

_KEY = "stash/watchers"
_LOOKS_SECONDS = 0.5
_MEETING_SECONDS = 120.0
EVERY = 32
_FOLLOWED = 3
"""Parameters whose gradients are the last of a backward pass, as it was seen to be."""
_LEARNS_AT = (2, 20)
"""Steps of which the order of gradients is learned: DDP makes its buckets again after the first."""
_LEARNS_EVERY = 2000
_LOOKS_AT = (5, 20)
"""Steps in which models are looked for: by then a script that compiles its model has mostly done so."""
_LOOKOUT_SECONDS = 5.0
_FULL_COLLECTION = 2
"""The generation of objects that takes long to look through."""
_COLLECTIVE = int(StepStage.COLLECTIVE)
_LINES_SECONDS = 5.0
ROW_OF = {
    int(StepStage.BETWEEN): LOOP,
    int(StepStage.INPUT): INPUT,
    int(StepStage.FORWARD): FORWARD,
    int(StepStage.BACKWARD): BACKWARD,
    int(StepStage.OPTIMIZER): OPTIMIZER,
}
"""What a ledger calls a stage."""
_RECORDERS = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDER_SECONDS = 1.0
_LOOKS_EVERY = 30
"""Samples between two looks at the recorder: copying its entries takes milliseconds."""


class Duty:
    """Something to be done after steps."""

    def step(self, now: float) -> bool:
        """A step ended ``now``; whether that was the last one."""
        raise NotImplementedError

    def rest(self) -> None:
        """Nothing is stamped for a while, or any more."""

    def go_on(self) -> None:
        """It is again, from the step on that begins now."""


class WatchersMeeting(Duty):
    """Local rank 0's part in it; asked after steps until it is over."""

    def __init__(self, folder: Path, node: int) -> None:
        self._folder, self._leads = RunFolder(folder), node == 0
        Neighbours(node, own_address()).write(self._folder)
        self._next, self._until = 0.0, time.perf_counter() + _MEETING_SECONDS

    def step(self, now: float) -> bool:
        """Look whether the invitation has come; no question waits for another node."""
        if now < self._next:
            return False
        self._next = now + _LOOKS_SECONDS
        store = private.default_store()
        if self._leads:
            invitation = Invitation.load(self._folder)
            if invitation is not None:
                store.set(_KEY, json.dumps(asdict(invitation)))
                return True
        elif store.check([_KEY]):
            Invitation(**json.loads(store.get(_KEY))).write_meeting(self._folder)
            return True
        return now > self._until


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


class CopiesFollowed(Duty):
    """Copies to the device are told of, of the stream that steps end in."""

    def __init__(self, copies: BatchCopies) -> None:
        self._copies = copies

    def step(self, now: float) -> bool:
        self._copies.step_ends()
        return False


class ModelSearch(Duty):
    """Where no loader is seen, as ``sees_loader()`` says, learns in one step which models it calls."""

    def __init__(self, stamps: Stamps, sees_loader: Callable[[], bool]) -> None:
        self._stamps, self._sees_loader = stamps, sees_loader
        self._steps = [stamps.steps + at for at in _LOOKS_AT]
        """That are still to come."""
        self._look: CalledModels | None = None

    def step(self, now: float) -> bool:
        if self._look is not None:
            found, self._look = self._look.end(), None
            return found or not self._steps
        if self._stamps.steps >= self._steps[0]:
            if self._sees_loader():
                return True
            self._steps = [at for at in self._steps if at > self._stamps.steps + 1]
            self._look = CalledModels()
        return False

    def rest(self) -> None:
        if self._look is not None:
            self._look.end()
            self._look = None


class StepNumbering(Duty):
    """Groups have counted as many collectives on all ranks by the end of a step, which tells its number."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps, self._before = stamps, _count_collectives()

    def step(self, now: float) -> bool:
        issued = _count_collectives()
        self._stamps.count_from(round(issued / max(1, issued - self._before)))
        return True


class GradientsFollowed(Duty):
    """Learns which gradients of ``parameters()`` are the last of a step, and has those followed."""

    def __init__(self, stamps: Stamps, parameters: Callable[[], Iterable[Any]]) -> None:
        self._stamps, self._parameters = stamps, parameters
        self._order: GradientOrder | None = None
        self._due = _LEARNS_AT[0]
        """So many steps of its own before it learns next."""
        self._steps = 0
        self._last: list[Any] = []

    def step(self, now: float) -> bool:
        self._steps += 1
        if self._order is not None:
            self._last, self._order = self._order.end() or self._last, None
            if self._last:
                self._stamps.follow(self._last)
            later = (at for at in _LEARNS_AT if at > self._steps)
            self._due = next(later, self._steps + _LEARNS_EVERY)
        elif self._steps >= self._due:
            self._stamps.let_go()
            self._order = GradientOrder(each for each in self._parameters() if each.requires_grad)
        return False

    def rest(self) -> None:
        if self._order is not None:
            self._order.end()
            self._order = None

    def go_on(self) -> None:
        if self._last:
            self._stamps.follow(self._last)


class GradientOrder:
    """Notes in which order gradients get ready in one step."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        self._ready: dict[int, Any] = {}
        self._handles = [each.register_post_accumulate_grad_hook(self._note) for each in parameters]

    def _note(self, parameter: Any) -> None:
        self._ready.pop(id(parameter), None)
        self._ready[id(parameter)] = parameter

    def end(self) -> list[Any]:
        """The last few."""
        for handle in self._handles:
            handle.remove()
        return list(self._ready.values())[-_FOLLOWED:]


class WatcherLookout(Duty):
    """Looks now and then whether the watcher's ``folder`` is still there; calls ``leave`` once it is not."""

    def __init__(self, folder: Path, leave: Callable[[], None]) -> None:
        self._folder, self._leave = folder, leave
        self._next = 0.0

    def step(self, now: float) -> bool:
        if now <= self._next:
            return False
        self._next = now + _LOOKOUT_SECONDS
        if self._folder.is_dir():
            return False
        self._leave()
        return True


class Collections:
    """Tells a ``listener`` of every time that Python looks for all of its garbage."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] == _FULL_COLLECTION:
            self._listener.handle(
                ThreadEvent.COLLECTION_BEGINS if phase == "start" else ThreadEvent.COLLECTION_ENDED
            )

    def end(self) -> None:
        if self._note in gc.callbacks:
            gc.callbacks.remove(self._note)


class Requests:
    """What the watcher asks of this ``rank``: to be paused, or traced, or told of its lines."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self._folder = folder
        self.number = 0
        """Of the latest one that was answered."""
        self._request = WatchRequest(0)
        self._trace: StepTrace | None = None

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be stamped."""
        return self._request.paused or self._trace is not None

    def read_request(self, stamps: Stamps) -> bool:
        """Read a new request; whether it asks for lines."""
        self._load_request(stamps)
        wanted = self._request.trace
        if wanted is not None and (not wanted.ranks or self.rank in wanted.ranks):
            self._trace = StepTrace(wanted, self.rank, stamps.steps + 1)
            self._trace.start()
        return self.rank in self._request.lines

    def _load_request(self, stamps: Stamps) -> None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            self._request = WatchRequest.load(self._folder)
        self.number = int(stamps.ring.live[2])

    def step_unstamped(self, stamps: Stamps) -> None:
        """A step ended that is not stamped."""
        stamps.count_from(stamps.steps + 1)
        if self._trace is None:
            if stamps.ring.live[2] != self.number:
                self._load_request(stamps)
            return
        try:
            over = self._trace.step()
        except Exception as error:
            over = True
            print(
                f"stash: the trace of rank {self.rank} was not written ({error})", file=sys.stderr
            )
        if over:
            self._trace = None


class ScriptLines(Duty):
    """For some seconds: at which lines of the script the training thread is, and for how long in a step."""

    def __init__(self, stamps: Stamps, folder: Path, rank: int) -> None:
        self._stamps, self._file = stamps, folder / f"{LINES}.{rank}.json"
        self._first, self._until = stamps.steps, stamps.now() + _LINES_SECONDS
        self._places = Places(get_ident(), lambda: ROW_OF.get(int(stamps.ring.live[0]), OTHER))
        self._places.start()

    def step(self, now: float) -> bool:
        """A step ended; whether it was the last of them, and the lines are told."""
        steps = self._stamps.steps - self._first
        if self._stamps.now() < self._until or steps < 1:
            return False
        self._places.stop()
        write_json_whole(
            self._file, [{**row, "seconds": row["seconds"] / steps} for row in self._places.rows()]
        )
        return True


def has_recorder() -> bool:
    """Whether PyTorch's flight recorder is on."""
    return any(os.environ.get(name, "0").strip() not in ("", "0") for name in _RECORDERS)


def write_recorders_when_asked(stamps: Stamps, folder: Path, rank: int) -> Thread:
    """Have a thread of its own do it: the training thread may stand in a collective by then."""

    def look() -> None:
        answered = stamps.ring.live[2]
        while folder.is_dir():
            time.sleep(_RECORDER_SECONDS)
            if stamps.ring.live[2] != answered:
                answered = stamps.ring.live[2]
                with suppress(OSError, ValueError, TypeError, KeyError):
                    if place := WatchRequest.load(folder).recorders:
                        _write_recorder(Path(place), rank)

    thread = Thread(target=look, name="stash recorder", daemon=True)
    thread.start()
    return thread


def _write_recorder(folder: Path, rank: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{rank}"
    draft.write_bytes(private.recorded_collectives())
    draft.rename(folder / f"nccl_trace_rank_{rank}")


class _CollectiveCounts:
    """How many collectives were issued in a step: ``before`` it, and since, inside calls that are seen."""

    def __init__(self, before: int) -> None:
        self.before = before
        self.seen = 0
        self._inside: int | None = None

    def enter(self, stage: int) -> None:
        """The thread is in that stage now."""
        if stage == _COLLECTIVE and self._inside is None:
            self._inside = _count_collectives()
        elif stage != _COLLECTIVE and self._inside is not None:
            self.seen += _count_collectives() - self._inside
            self._inside = None


class StepSample(Duty):
    """Follows ``stamps`` through single steps."""

    def __init__(self, stamps: Stamps) -> None:
        self._stamps = stamps
        self._counts: _CollectiveCounts | None = None
        """Of the step that is followed."""
        self._samples = 0
        self.recorded = has_recorder()

    def step(self, now: float) -> bool:
        since = self._stamps.steps % EVERY
        if since <= 1:
            self.end()
        if since == 0:
            self.begin()
        return False

    def begin(self) -> None:
        """The step that begins now is followed."""
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_initialized():
            return
        self._counts = _CollectiveCounts(_count_collectives())
        self._stamps.observers.append(self._counts.enter)

    def end(self) -> None:
        """The followed step has ended, and its unseen collectives are told; nothing if none is followed."""
        if self._counts is None:
            return
        counts, self._counts = self._counts, None
        self._stamps.observers.remove(counts.enter)
        issued = _count_collectives() - counts.before
        unseen = issued - counts.seen - sum(map(_replica_collectives, replicas.list_modules()))
        if unseen > 0:
            self._stamps.ring.name_unseen(
                f"{unseen} {issued}{self._read_recorder() if self.recorded else ''}"
            )
        self._samples += 1

    def _read_recorder(self) -> str:
        """Seconds of one collective that the flight recorder timed, with a space before; else nothing."""
        if self._samples % _LOOKS_EVERY:
            return ""
        count, seconds = sum_unseen_collectives(
            pickle.loads(private.recorded_collectives())["entries"]
        )
        return f" {seconds / count:.9f}" if count and seconds else ""


def _count_collectives() -> int:
    return sum(private.sequence_numbers().values())


def _replica_collectives(model: Any) -> int:
    """Collectives of a step that DistributedDataParallel itself issues: its buckets, and buffers by their type."""
    buffers = (
        len({buffer.dtype for buffer in model.module.buffers()}) if model.broadcast_buffers else 0
    )
    return len(private.bucket_bytes(model)) + buffers


def sum_unseen_collectives(entries: Iterable[Mapping[str, Any]]) -> tuple[int, float]:
    """(count, seconds) of the flight recorder's entries that neither ``torch.distributed`` nor DDP issued.

    Seconds of those that it timed (NCCL, with ``TORCH_NCCL_ENABLE_TIMING``); 0 if it timed none.
    """
    count, seconds, has_replicas = 0, 0.0, bool(replicas.list_modules())
    for entry in entries:
        frames = [(str(frame["filename"]), str(frame["name"])) for frame in entry.get("frames", ())]
        files = [file for file, _ in frames]
        if any(file.endswith("distributed_c10d.py") for file in files):
            continue
        through_op = any(
            file.endswith(("torch/_ops.py", "_functional_collectives.py")) for file in files
        )
        if has_replicas and not through_op:
            continue
        count += 1
        seconds += float(entry.get("duration_ms") or 0.0) / 1e3
    return count, seconds
