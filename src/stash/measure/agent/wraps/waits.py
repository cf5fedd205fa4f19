"""What a step waits for in collectives, by process group and kind; and when a pipeline's passes run in between.

Only the outermost call counts while it lasts, so the times of one rank are a union and never overlap. A call that is
asynchronous counts where it is waited for. On CUDA both ends of a wait are events of
the current stream: what the device did not wait for takes no time. What DistributedDataParallel's reducer waits for
in C++ is not here; a step's stage ``exchange`` is (``runner/stamps``).
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from stash.measure.agent import private, script
from stash.measure.agent.script import Function

_WAITED = 20e-6
"""Seconds; who waits less may have got what it waited for before."""
_UNSURE = 0.1
"""Of the time that a group's calls were under way, what may be unknown of it."""
_MAX_UNWAITED = 10_000
"""Calls that went on beside and were never waited for, of which the group is remembered."""
_MAX_MARKS = 100_000
"""Of a block; a step with many thousand collectives leaves the rest of them uncounted, and says so."""
UNNAMED = "group"
"""Of a process group that belongs to no mesh, and of waits of which it is unknown what they wait for."""
HANDED_ON = ("send", "recv")
PHASE = "phase:"
"""In the place of a group's name: time in what the script itself names, which is no wait."""
Key = tuple[str, str]
"""Name of a process group, and kind of collective."""
Pass = tuple[int, str, int]
"""Stage, what (``F``, ``B``, ``I``, ``W``), microbatch."""


class HostMarks:
    """Moments on the host's clock."""

    now = staticmethod(time.perf_counter)
    here = True
    """Whether what is called now keeps the work that the step is made of waiting."""
    captures = False
    """Whether it goes into a graph, of which an event tells nothing."""

    @staticmethod
    def seconds(mark: float) -> float:
        return mark


class DeviceMarks:
    """Moments in the queue of a CUDA ``device``'s current stream, in seconds since this object was made."""

    def __init__(self, device: Any = None) -> None:
        self._cuda = sys.modules["torch"].cuda
        self._current = private.current_stream(self._cuda, device)
        self._stream = self._current()
        self._base = self.now()

    @property
    def here(self) -> bool:
        """Of calls on other streams (FSDP2's) only what the step's own stream waits for them counts."""
        return bool(self._current() == self._stream)

    @property
    def captures(self) -> bool:
        return bool(self._cuda.is_current_stream_capturing())

    def now(self) -> Any:
        event = self._cuda.Event(enable_timing=True)
        event.record(self._current())
        return event

    def seconds(self, mark: Any) -> float:
        return float(self._base.elapsed_time(mark)) / 1e3


class GroupCalls(NamedTuple):
    """Of one group by one kind of collective."""

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Waited."""
    under_way: float = 0.0
    """From each call until what it asked for was there, waited for or not, less waits for other calls meanwhile."""
    unsure: float = 0.0
    """Beyond that at most, of those that were there some time before anybody waited for them."""

    def plus(self, more: Iterable[Any]) -> GroupCalls:
        return GroupCalls(*map(operator.add, self, more))


class Flight(NamedTuple):
    """A call that goes on beside: what it is, and when it began."""

    key: Key
    began: Any


class CountedBlock:
    """What is called while a block's steps are counted; what it took is known at the block's end."""

    def __init__(self, marks: Any) -> None:
        self.marks = marks
        self.lost = False
        """There were more calls than a block keeps."""
        self.uses: dict[Key, GroupCalls] = {}
        self.rows: Counter[str] = Counter()
        """Received in exchanges whose split sizes the script gives, by group: tokens of experts."""
        self.passes: list[list[tuple[Pass | None, float]]] = []
        """Of each step, in order: each pass and its seconds less what it waited for other stages; at last ``None``
        and the seconds of the step outside of passes."""
        self._log: list[tuple[Any, Any, Any, Any, int, Flight | None]] = []
        """(what, marks of its begin, of its end, and of its end on its own stream, bytes, flight); without the first
        end a pass, or what ``steps_of`` reads. Bytes of a wait for what was called elsewhere are negative."""

    def has_room(self) -> bool:
        """Whether another call is kept."""
        self.lost = self.lost or len(self._log) > _MAX_MARKS
        return not self.lost

    def add_call(
        self, key: Key, began: Any, ended: Any, last: Any, size: int, flight: Flight | None = None
    ) -> None:
        """As the log has it."""
        self._log.append((key, began, ended, last, size, flight))

    def add_reading(self, what: Pass | str) -> None:
        """As ``steps_of`` reads it."""
        now = self.marks.now()
        self._log.append((what, now, None, now, 0, None))

    def cut(self) -> None:
        """A step ends."""
        if self._log and self._log[-1][0] == "cut":  # nothing was called in it
            self._log.pop()
        self.add_reading("cut")

    def close(self) -> None:
        """The device's queue is empty: add up what was called."""
        seconds, others_seconds = self.marks.seconds, 0.0
        waits: list[tuple[float, float]] = []
        readings: list[tuple[Pass | str, float]] = []
        for what, began, ended, last, size, flight in self._log:
            start = seconds(began)
            if ended is None:
                readings.append((what, start - others_seconds))
                continue
            end, is_call, unsure = seconds(ended), size >= 0, 0.0
            under_way = seconds(last) - start if is_call else 0.0
            if flight is not None:
                under_way, beside = (
                    end - start,
                    _seconds_beside(seconds(flight.began), start, waits),
                )
                # who had to wait got what it waited for at the end of that
                if under_way > _WAITED:
                    under_way += beside
                else:
                    unsure = beside
            use = self.uses.get(what, GroupCalls())
            self.uses[what] = use.plus((is_call, max(size, 0), end - start, under_way, unsure))
            if what[0] != PHASE and end > start:
                waits.append((start, end))
            if what[1] in HANDED_ON:
                others_seconds += end - start
        self._log.clear()
        self.passes = steps_of(readings)


def _seconds_beside(sent: float, waited: float, waits: Sequence[tuple[float, float]]) -> float:
    """Of a call from when it was ``sent`` until it is ``waited`` for, without ``waits``, which never overlap."""
    others = itertools.takewhile(lambda wait: wait[1] > sent, reversed(waits))
    return waited - sent - sum(end - max(sent, begin) for begin, end in others)


class Ledger:
    """Counts from ``begin`` to ``end``; calls outside of that are passed on untouched."""

    def __init__(self) -> None:
        self.counts = False
        self.last_block = CountedBlock(HostMarks())
        self._begun: dict[int, Flight] = {}
        """Of works and results of functional collectives that nobody waited for yet."""
        self.names: dict[str, str] = {}
        """What process groups are called, by PyTorch's names for them."""
        self.steps = 0
        self.totals: dict[Key, GroupCalls] = {}
        """In all blocks in which everything was exchanged, of so many steps."""
        self._dispatched: tuple[list[int], list[int]] | None = None
        self._phase: tuple[str, Any] | None = None
        """What the script named, and the mark of its begin; ``None`` for that while nothing is counted."""

    def begin(self, device: Any = None) -> None:
        """A block's measured steps begin, of a CUDA ``device`` or of the host."""
        block = CountedBlock(HostMarks() if device is None else DeviceMarks(device))
        self.last_block, self.counts, self._dispatched = block, True, None
        if self._phase is not None:
            self._phase = self._phase[0], block.marks.now()
        block.cut()

    def end(self, steps: int) -> None:
        """They are over, and the device's queue is empty; ``steps`` in which everything was exchanged, or none."""
        open_phase = self._phase
        self.phase_ends()
        self.counts = False
        self._phase = None if open_phase is None else (open_phase[0], None)
        self.last_block.close()
        self.steps += steps
        for key, use in self.last_block.uses.items() if steps else ():
            self.totals[key] = use.plus(self.totals.get(key, GroupCalls()))

    def waits(self) -> dict[str, float]:
        """Seconds of the last block by group and kind, as ``"dp/all_reduce"``."""
        return {name: use.seconds for name, use in self._uses_by_name().items()}

    def under_way(self) -> dict[str, float]:
        """Seconds in which calls of the last block were under way, named as ``waits``; without what is unknown."""
        return {
            name: use.under_way
            for name, use in self._uses_by_name().items()
            if use.unsure <= _UNSURE * (use.under_way + use.unsure)
        }

    def _uses_by_name(self) -> dict[str, GroupCalls]:
        found: dict[str, GroupCalls] = {}
        for (group, kind), use in self.last_block.uses.items():
            if group != PHASE:
                name = f"{self.names.get(group, UNNAMED)}/{kind}"
                found[name] = use.plus(found.get(name, GroupCalls()))
        return found

    def phase_seconds(self) -> dict[str, float]:
        """Seconds of the last block in what the script named, by name."""
        uses = self.last_block.uses.items()
        return {kind: use.seconds for (group, kind), use in uses if group == PHASE}

    def received_rows(self) -> dict[str, int]:
        """Rows that ranks of a group sent to this one in the last block, by the group's name."""
        found: Counter[str] = Counter()
        for group, rows in self.last_block.rows.items():
            found[self.names.get(group, UNNAMED)] += rows
        return dict(found)

    def note_dispatch(self, group: str, given: list[int], taken: list[int]) -> None:
        """Rows by rank go out, and come in; what goes back where the last ones came from is an answer to them."""
        if self.counts:
            is_answer = self._dispatched == (taken, given)
            self._dispatched = None if is_answer else (given, taken)
            self.last_block.rows[group] += 0 if is_answer else sum(taken)

    def phase_begins(self, name: str) -> bool:
        """The script begins what it calls ``name``; whether it counts: within another it belongs to that."""
        if self._phase is not None:
            return False
        self._phase = name, self.last_block.marks.now() if self.counts else None
        return True

    def phase_ends(self) -> None:
        """What it named last is over."""
        if self._phase is not None:
            (name, began), self._phase = self._phase, None
            if began is not None and self.counts and self.last_block.has_room():
                now = self.last_block.marks.now()
                self.last_block.add_call((PHASE, name), began, now, now, -1)

    def outer(
        self, key: Key, size: int, call: Callable[[], Any], flight: Flight | None = None
    ) -> Any:
        """Run a collective, or a wait for that in ``flight``."""
        block = self.last_block
        marks = block.marks
        if not self.counts or not block.has_room() or marks.captures:
            return call()
        self.counts = False  # what it calls in turn is part of it
        here, began = marks.here, marks.now()
        try:
            return call()
        finally:
            ended = marks.now()
            block.add_call(
                key, began, ended if here else began, ended, size, flight if here else None
            )
            self.counts = True

    @property
    def is_on_device(self) -> bool:
        """Whether a block is under way whose marks are events."""
        return self.counts and isinstance(self.last_block.marks, DeviceMarks)

    def note_call(self, key: Key, size: int) -> None:
        """A call that makes nobody wait by itself."""
        if self.counts and self.last_block.has_room():
            now = self.last_block.marks.now()
            self.last_block.add_call(key, now, now, now, size)

    def goes_on(self, handle: int, key: Key) -> None:
        """What ``key`` names goes on beside until ``handle`` (of a work, or a result's address) is waited for."""
        if len(self._begun) > _MAX_UNWAITED:
            self._begun.clear()
        self._begun[handle] = Flight(key, self.last_block.marks.now())

    def waited_for(self, handle: Any) -> Flight | None:
        """Which collective's end is waited for now."""
        return self._begun.pop(handle, None)

    def note_pass(self, which: Pass | str) -> None:
        """A stage of a pipeline begins with a microbatch, or (``"end"``) is through with it."""
        if self.counts and self.last_block.has_room():
            self.last_block.add_reading(which)


def steps_of(readings: Iterable[tuple[Pass | str, float]]) -> list[list[tuple[Pass | None, float]]]:
    """Steps out of readings of a clock that stands still while another stage is waited for.

    A reading is taken as each pass begins, one (``"end"``) as it ends, and one (``"cut"``) between steps. A pass
    lasts until the next one of its step begins: what is done with its result belongs to it.
    """
    steps: list[list[tuple[Any, float]]] = []
    step: list[tuple[Any, float]] = []
    cut = 0.0
    for which, reading in readings:
        if which != "cut":
            step.append((which, reading))
            continue
        if step:
            _, ended = step[-1]
            begun = [each for each in step if each[0] != "end"]
            following = [at for _, at in begun[1:]] + [ended]
            took = [(name, after - at) for (name, at), after in zip(begun, following, strict=True)]
            steps.append([*took, (None, reading - cut - (ended - step[0][1]))])
        step, cut = [], reading
    return steps


ledger = Ledger()
"""Of this process."""


def kind_of(name: str) -> str:
    """Of a function of ``torch.distributed``: calls that hand on to single ranks are ``send`` and ``recv``."""
    return "send" if name == "batch_isend_irecv" else name.removeprefix("i")


def remember_works(result: Any, key: Key, operations: Any = None) -> None:
    """Remember the works that an asynchronous call of ``torch.distributed`` returned, to be waited for later."""
    if not ledger.counts or result is None:
        return
    works = result if isinstance(result, list) else [result]
    kinds = [key[1]] * len(works)
    if operations is not None and len(works) == len(operations):
        kinds = [kind_of(each.op.__name__) for each in operations]
    for work, kind in zip(works, kinds, strict=True):
        ledger.goes_on(id(work), (key[0], kind))


def wrap_work(c10d: ModuleType) -> None:
    """Count what waits for a ``Work`` take, and stamp them."""
    original = c10d.Work.wait

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = functools.partial(original, self, *args, **kwargs)
        return wait_in_flight(ledger.waited_for(id(self)), call)

    script.put(c10d.Work, wait=wait)


def wait_in_flight(flight: Flight | None, call: Callable[[], Any]) -> Any:
    """Wait for that in ``flight``; ``None`` is something unknown."""
    return stamp_call(("", "wait") if flight is None else flight.key, -1, call, flight)


def stamp_call(key: Key, size: int, call: Callable[[], Any], flight: Flight | None = None) -> Any:
    """Run a collective or a wait for one, in the stage of a step that is for them."""
    return script.run_collective(ledger.outer, key, size, call, flight)


def wrap_param_group(module: ModuleType) -> None:
    """Count on CUDA what the step's stream waits for FSDP2's own streams; what it copies out there is among it."""
    cls = module.FSDPParamGroup
    for name, group, kind in (
        ("wait_for_unshard", private.gathering_group, "all_gather"),
        ("finalize_backward", private.scattering_group, "reduce_scatter"),
    ):
        if name in vars(cls):
            script.wrap(cls, name, _wrap_stream_wait, group, kind)


def _wrap_stream_wait(original: Function, group: Function, kind: str) -> Function:
    @functools.wraps(original)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not ledger.is_on_device:
            return original(self, *args, **kwargs)
        key = (group(self).group_name, kind)
        return stamp_call(key, -1, functools.partial(original, self, *args, **kwargs))

    return wrapper


def wrap_stages(module: ModuleType) -> None:
    """Note each pass of a microbatch through a stage of ``torch.distributed.pipelining``."""
    cls = private.stage_class(module)
    for name, kind in (
        ("forward_one_chunk", "F"),
        ("backward_one_chunk", "B"),
        ("backward_weight_one_chunk", "W"),
    ):
        if name in vars(cls):
            script.wrap(cls, name, _note_pass, kind)


def _note_pass(original: Function, kind: str) -> Function:
    @functools.wraps(original)
    def wrapper(self: Any, chunk: int, *args: Any, **kwargs: Any) -> Any:
        half = kind == "B" and not (args[1] if len(args) > 1 else kwargs.get("full_backward", True))
        ledger.note_pass((int(self.stage_index), "I" if half else kind, chunk))
        try:
            return original(self, chunk, *args, **kwargs)
        finally:
            ledger.note_pass("end")

    return wrapper
