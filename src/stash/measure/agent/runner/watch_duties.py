"""What a watched rank does beside stamping: bring watchers together, trace steps, count collectives, tell lines.

A duty is a generator that each step of the job resumes until its next ``yield``. One that is closed, since nothing is
stamped for a while, takes away what it put in place; it begins again when stamping goes on.

Watchers meet as launchers do: each says where it can be reached, and the ranks carry the invitation of node 0's to
the others, through the store that the job's ranks met at.

A process group counts what is issued through it, by whomever: what it counted outside calls of ``torch.distributed``
and beyond DistributedDataParallel's own buckets was issued by C++ (functional collectives, compiled graphs), and its
time is in the stage that it fell into. Where PyTorch's flight recorder is on (``TORCH_FR_BUFFER_SIZE``) it is asked
instead, and tells seconds where it times them.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread, get_ident
from typing import Any, TypeAlias

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
_LEARNS_AFTER = (2, 17)
"""Steps, until the order of gradients is learned: DDP makes its buckets again after the first."""
_LEARNS_EVERY = 2000
_LOOKS_AT = (5, 20)
"""Steps in which models are looked for: by then a script that compiles its model has mostly done so."""
_LOOKOUT_SECONDS = 5.0
_FULL_COLLECTION = 2
"""The generation of objects that takes long to look through."""
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
Duty: TypeAlias = Callable[[], Generator[None, None, None]]
"""Begins it."""


class Duties:
    """Those of one rank; what is through is not begun again."""

    def __init__(self) -> None:
        self._under_way: dict[Duty, Generator[None, None, None]] = {}

    def add(self, duty: Duty) -> None:
        """Begin it now."""
        self._under_way[duty] = duty()
        self._resume(duty)

    def _resume(self, duty: Duty) -> None:
        if next(self._under_way[duty], self) is self:
            del self._under_way[duty]

    def end_step(self) -> None:
        """A step ended."""
        for duty in [*self._under_way]:
            self._resume(duty)

    def rest(self) -> None:
        """Nothing is stamped for a while, or any more."""
        for under_way in self._under_way.values():
            # the one that runs asks for this, and is at its end
            if not under_way.gi_running:  # type: ignore[attr-defined]
                under_way.close()

    def go_on(self) -> None:
        """It is again, from the step on that begins now."""
        for duty in [*self._under_way]:
            self.add(duty)


def _pass_seconds(seconds: float) -> Generator[None, None, None]:
    """Steps, one at least, until so many seconds are over."""
    until = time.perf_counter() + seconds
    yield
    while time.perf_counter() < until:
        yield


def bring_watchers_together(folder: Path, node: int) -> Generator[None, None, None]:
    """Local rank 0's part in it; no question waits for another node."""
    own = RunFolder(folder)
    Neighbours(node, own_address()).write(own)
    for _ in range(round(_MEETING_SECONDS / _LOOKS_SECONDS)):
        yield from _pass_seconds(_LOOKS_SECONDS)
        store = private.default_store()
        if node == 0:
            invitation = Invitation.load(own)
            if invitation is not None:
                store.set(_KEY, json.dumps(asdict(invitation)))
                return
        elif store.check([_KEY]):
            Invitation(**json.loads(store.get(_KEY))).write_meeting(own)
            return


def follow_copies(copies: BatchCopies) -> Generator[None, None, None]:
    """Copies to the device are told of, of the stream that steps end in."""
    while True:
        yield
        copies.step_ends()


def look_for_models(stamps: Stamps, sees_loader: Callable[[], bool]) -> Generator[None, None, None]:
    """Where no loader is seen, as ``sees_loader()`` says, learn in one step which models it calls."""
    first = stamps.steps
    for at in _LOOKS_AT:
        while stamps.steps < first + at:
            yield
        if sees_loader():
            return
        look = CalledModels()
        try:
            yield
        finally:
            found = look.end()
        if found:
            return


def number_steps(stamps: Stamps) -> Generator[None, None, None]:
    """Groups have counted as many collectives on all ranks by the end of a step, which tells its number."""
    before = _count_collectives()
    yield
    issued = _count_collectives()
    stamps.count_from(round(issued / max(1, issued - before)))


def follow_gradients(
    stamps: Stamps, parameters: Callable[[], Iterable[Any]]
) -> Generator[None, None, None]:
    """Learn which gradients of ``parameters()`` are the last of a step, and have those followed."""
    last: list[Any] = []
    for steps in itertools.chain(_LEARNS_AFTER, itertools.repeat(_LEARNS_EVERY)):
        for _ in range(steps):
            yield
        stamps.let_go()
        ready: dict[int, Any] = {}

        def note_gradient(parameter: Any, ready: dict[int, Any] = ready) -> None:
            ready.pop(id(parameter), None)
            ready[id(parameter)] = parameter

        trained = [each for each in parameters() if each.requires_grad]
        handles = [each.register_post_accumulate_grad_hook(note_gradient) for each in trained]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        last = [*ready.values()][-_FOLLOWED:] or last
        if last:
            stamps.follow(last)


def look_out_for_watcher(folder: Path, leave: Callable[[], None]) -> Generator[None, None, None]:
    """Call ``leave`` once the watcher's ``folder`` is no longer there."""
    while folder.is_dir():
        yield from _pass_seconds(_LOOKOUT_SECONDS)
    leave()


def tell_lines(stamps: Stamps, folder: Path, rank: int) -> Generator[None, None, None]:
    """For some seconds: at which lines of the script the training thread is, and for how long in a step."""
    first = stamps.steps
    places = Places(get_ident(), lambda: ROW_OF.get(int(stamps.ring.live[0]), OTHER))
    places.start()
    try:
        yield
        yield from _pass_seconds(_LINES_SECONDS)
    finally:
        places.stop()
    steps = stamps.steps - first
    rows = [{**row, "seconds": row["seconds"] / steps} for row in places.rows()]
    write_json_whole(folder / f"{LINES}.{rank}.json", rows)


def tell_of_collections(listener: Listener) -> Callable[[], None]:
    """Tell a ``listener`` of every time that Python looks for all of its garbage; the value ends that."""

    def note_collection(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == _FULL_COLLECTION:
            begins = phase == "start"
            listener.handle(
                ThreadEvent.COLLECTION_BEGINS if begins else ThreadEvent.COLLECTION_ENDED
            )

    def end() -> None:
        if note_collection in gc.callbacks:
            gc.callbacks.remove(note_collection)

    gc.callbacks.append(note_collection)
    return end


def has_recorder() -> bool:
    """Whether PyTorch's flight recorder is on."""
    return any(os.environ.get(name, "0").strip() not in ("", "0") for name in _RECORDERS)


def write_recorders_when_asked(stamps: Stamps, folder: Path, rank: int) -> Thread:
    """Have a thread of its own do it: the training thread may stand in a collective by then."""

    def look() -> None:
        answered = stamps.ring.live[2]
        while folder.is_dir():
            time.sleep(_RECORDER_SECONDS)
            if stamps.ring.live[2] == answered:
                continue
            answered = stamps.ring.live[2]
            with suppress(OSError, ValueError, TypeError, KeyError):
                if place := WatchRequest.load(folder).recorders:
                    Path(place).mkdir(parents=True, exist_ok=True)
                    draft = Path(place) / f".{rank}"
                    draft.write_bytes(private.recorded_collectives())
                    draft.rename(Path(place) / f"nccl_trace_rank_{rank}")

    thread = Thread(target=look, name="stash recorder", daemon=True)
    thread.start()
    return thread


class _StepCollectives:
    """How many collectives are issued in a step: all of them, and those inside calls that are seen."""

    def __init__(self) -> None:
        self._before = _count_collectives()
        self._seen = 0
        self._inside: int | None = None

    def enter(self, stage: int) -> None:
        """The thread is in that stage now."""
        if self._inside is not None:
            self._seen += _count_collectives() - self._inside
        self._inside = _count_collectives() if stage == StepStage.COLLECTIVE else None

    def count(self) -> tuple[int, int]:
        """(by C++, all) so far."""
        issued = _count_collectives() - self._before
        own = sum(map(_replica_collectives, replicas.list_modules()))
        return issued - self._seen - own, issued


def sample_collectives(stamps: Stamps) -> Generator[None, None, None]:
    """Follow ``stamps`` through single steps, and tell of those collectives that no stamp comes to."""
    samples = 0
    while True:
        yield
        dist = sys.modules.get("torch.distributed")
        if stamps.steps % EVERY or dist is None or not dist.is_initialized():
            continue
        counts = _StepCollectives()
        stamps.observers.append(counts.enter)
        try:
            yield
        finally:
            stamps.observers.remove(counts.enter)
        unseen, issued = counts.count()
        if unseen > 0:
            looks = has_recorder() and samples % _LOOKS_EVERY == 0
            stamps.ring.name_unseen(f"{unseen} {issued}{_read_recorder() if looks else ''}")
        samples += 1


def _read_recorder() -> str:
    """Seconds of one collective that the flight recorder timed, with a space before; else nothing."""
    entries = pickle.loads(private.recorded_collectives())["entries"]
    count, seconds = sum_unseen_collectives(entries)
    return f" {seconds / count:.9f}" if count and seconds else ""


def _count_collectives() -> int:
    return sum(private.sequence_numbers().values())


def _replica_collectives(model: Any) -> int:
    """Collectives of a step that DistributedDataParallel itself issues: its buckets, and buffers by their type."""
    buffers = model.module.buffers() if model.broadcast_buffers else ()
    return len(private.bucket_bytes(model)) + len({buffer.dtype for buffer in buffers})


def sum_unseen_collectives(entries: Iterable[Mapping[str, Any]]) -> tuple[int, float]:
    """(count, seconds) of the flight recorder's entries that neither ``torch.distributed`` nor DDP issued.

    Seconds of those that it timed (NCCL, with ``TORCH_NCCL_ENABLE_TIMING``); 0 if it timed none.
    """
    count, seconds, has_replicas = 0, 0.0, bool(replicas.list_modules())
    for entry in entries:
        files = [str(frame["filename"]) for frame in entry.get("frames", ())]
        if any(file.endswith("distributed_c10d.py") for file in files):
            continue
        through_op = ("torch/_ops.py", "_functional_collectives.py")
        if has_replicas and not any(file.endswith(through_op) for file in files):
            continue
        count += 1
        seconds += float(entry.get("duration_ms") or 0.0) / 1e3
    return count, seconds
