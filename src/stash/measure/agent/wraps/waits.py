"""What a step waits for in collectives, by process group and kind; and when a pipeline's passes run in between.

Only the outermost call counts while it lasts, so the times of one rank are a union and never overlap. A call that is
asynchronous counts where it is waited for. On CUDA both ends of a wait are events of
the current stream: what the device did not wait for takes no time. What DistributedDataParallel's reducer waits for
in C++ is not here; a step's stage ``exchange`` is (``runner/stamps``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from stash.measure.agent import private, script
from stash.measure.agent.script import Function
from stash.measure.agent.wraps.wait_marks import DeviceMarks, HostMarks

_WAITED = 20e-6
"""Seconds; who waits longer got what it waited for at the end of that, and not before."""
_UNSURE = 0.1
"""Of the time that a group's calls were under way, what may be unknown of it."""
_MAX_UNWAITED = 10_000
"""Calls that went on beside and were never waited for, of which the group is remembered."""
_MAX_MARKS = 50_000
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


@dataclass(frozen=True)
class GroupCalls:
    """Of one group by one kind of collective, in a block."""

    calls: int = 0
    bytes: int = 0
    seconds: float = 0.0
    """Waited."""
    under_way: float = 0.0
    """From each call until what it asked for was there, waited for or not, less waits for other calls meanwhile."""
    unsure: float = 0.0
    """Beyond that at most, of those that were there some time before anybody waited for them."""

    def add_call(self, size: int, seconds: float, under_way: float, unsure: float) -> GroupCalls:
        """… and one call more; of a wait for what was called elsewhere ``size`` is negative."""
        return GroupCalls(
            calls=self.calls + (size >= 0),
            bytes=self.bytes + max(size, 0),
            seconds=self.seconds + seconds,
            under_way=self.under_way + under_way,
            unsure=self.unsure + unsure,
        )


@dataclass(frozen=True)
class BlockWaits:
    """What a block's steps waited for, and their passes."""

    uses: dict[Key, GroupCalls] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """Received in exchanges whose split sizes the script gives, by group: tokens of experts."""
    passes: list[list[tuple[Pass | None, float]]] = field(default_factory=list)
    """Of each step, in order: each pass and its seconds less what it waited for other stages; at last ``None``
    and the seconds of the step outside of passes."""


class Flight:
    """A call that goes on beside: what it is, when it began, and when it was over, where that is seen."""

    def __init__(self, key: Key, began: Any) -> None:
        self.key, self.began = key, began
        self.over: Any = None


LoggedCall = tuple[Any, Any, Any, int, Any]
"""(what, mark of its begin, of its end, bytes, what it waits for): a key; without an end a pass, or what ``steps_of``
reads. What it waits for is a ``Flight``; of calls on other streams the mark of their end."""


class CountedBlock:
    """What is called while a block's steps are counted, and what is known of the calls that are done."""

    def __init__(self, marks: Any) -> None:
        self.marks = marks
        self.waits = BlockWaits()
        self.lost = False
        """There were more calls than a block keeps."""
        self._log: deque[LoggedCall] = deque()
        self._recent: deque[tuple[float, float]] = deque(maxlen=1000)
        """Begin and end of the last waits, in seconds; they never overlap."""
        self._others_seconds = 0.0
        """Waited for other stages so far."""
        self._readings: list[tuple[Pass | str, float]] = []
        self._dispatched: tuple[list[int], list[int]] | None = None

    @property
    def is_full(self) -> bool:
        return len(self._log) > _MAX_MARKS

    def lose_call(self) -> None:
        """A call is not kept."""
        self.lost = True

    def add(
        self, what: Any, began: Any, ended: Any = None, size: int = 0, other: Any = None
    ) -> None:
        """As ``LoggedCall`` has it."""
        self._log.append((what, began, ended, size, other))

    def note_dispatch(self, group: str, given: list[int], taken: list[int]) -> None:
        """As in ``Ledger``."""
        if self._dispatched == (taken, given):
            self._dispatched = None
            return
        self._dispatched = given, taken
        self.waits.rows[group] = self.waits.rows.get(group, 0) + sum(taken)

    def close(self) -> BlockWaits:
        """The device's queue is empty: all that is known."""
        self.settle()
        self.waits = replace(self.waits, passes=steps_of(self._readings))
        return self.waits

    def cut(self) -> None:
        """A step ends; what is done by then is added up, once there is anything."""
        log = self._log
        if len(log) != 1 or log[0][0] != "cut":
            self.settle()
            log.append(("cut", self.marks.now(), None, 0, None))
        else:
            log[0] = ("cut", self.marks.now(), None, 0, None)

    def settle(self) -> None:
        """Add up what is done."""
        seconds, done = self.marks.seconds, self.marks.done
        while self._log:
            what, began, ended, size, other = self._log[0]
            last = (
                began
                if ended is None
                else ended
                if other is None or isinstance(other, Flight)
                else other
            )
            if not done(last):
                return
            self._log.popleft()
            if ended is None:
                self._readings.append((what, seconds(began) - self._others_seconds))
                continue
            start, end = seconds(began), seconds(ended)
            under_way = unsure = 0.0
            if isinstance(other, Flight):
                under_way, unsure = self._flight_seconds(other, start, end)
            elif size >= 0:  # else a wait for what was called elsewhere
                under_way = seconds(last) - start
            before = self.waits.uses.get(what, GroupCalls())
            self.waits.uses[what] = before.add_call(size, end - start, under_way, unsure)
            if what[0] != PHASE and end > start:
                self._recent.append((start, end))
            if what[1] in HANDED_ON:
                self._others_seconds += end - start

    def _flight_seconds(self, flight: Flight, began: float, ended: float) -> tuple[float, float]:
        """Seconds that a call was under way, and perhaps was: it was waited for from ``began`` to ``ended``."""
        sent = self.marks.seconds(flight.began)
        if flight.over is not None or ended - began > _WAITED:
            over = ended if flight.over is None else min(ended, self.marks.seconds(flight.over))
            return over - sent - self._waited_between(sent, over), 0.0
        return ended - began, began - sent - self._waited_between(sent, began)

    def _waited_between(self, begin: float, end: float) -> float:
        """Seconds in which something was waited for."""
        waits = itertools.takewhile(lambda wait: wait[1] > begin, reversed(self._recent))
        return sum(max(0.0, min(end, ended) - max(begin, began)) for began, ended in waits)


class Ledger:
    """Counts from ``begin`` to ``end``; calls outside of that are passed on untouched."""

    def __init__(self) -> None:
        self.counts = False
        self._block = CountedBlock(HostMarks())
        """The last one."""
        self._inside = False
        self._begun: dict[int, Flight] = {}
        """Of works and results of functional collectives that nobody waited for yet."""
        self.names: dict[str, str] = {}
        """What process groups are called, by PyTorch's names for them."""
        self.steps = 0
        self.totals: dict[Key, GroupCalls] = {}
        """In all blocks in which everything was exchanged, of so many steps."""
        self._phase: tuple[str, Any] | None = None
        """What the script named, and the mark of its begin; ``None`` for that while nothing is counted."""

    @property
    def last_block(self) -> BlockWaits:
        """In the last block."""
        return self._block.waits

    @property
    def has_lost_calls(self) -> bool:
        """There were more calls than a block keeps."""
        return self._block.lost

    @property
    def _marks(self) -> Any:
        return self._block.marks

    @property
    def _is_keeping(self) -> bool:
        return self.counts and not self._block.is_full

    def begin(self, device: Any = None) -> None:
        """A block's measured steps begin, of a CUDA ``device`` or of the host."""
        self._block = CountedBlock(HostMarks() if device is None else DeviceMarks(device))
        self.counts = True
        if self._phase is not None:
            self._phase = self._phase[0], self._marks.now()
        self._block.add("cut", self._marks.now())

    def end(self, steps: int) -> None:
        """They are over, and the device's queue is empty; ``steps`` in which everything was exchanged, or none."""
        open_phase = self._phase
        self.phase_ends()
        self.counts = False
        self._phase = None if open_phase is None else (open_phase[0], None)
        waits = self._block.close()
        self.steps += steps
        for key, use in waits.uses.items() if steps else ():
            before = self.totals.get(key, GroupCalls())
            self.totals[key] = replace(
                before, calls=before.calls + use.calls, bytes=before.bytes + use.bytes
            )

    def waits(self) -> dict[str, float]:
        """Seconds of the last block by group and kind, as ``"dp/all_reduce"``."""
        found: dict[str, float] = {}
        for name, use in self._iter_groups():
            found[name] = found.get(name, 0.0) + use.seconds
        return found

    def _iter_groups(self) -> Iterator[tuple[str, GroupCalls]]:
        for (group, kind), use in self.last_block.uses.items():
            if group != PHASE:
                yield f"{self.names.get(group, UNNAMED)}/{kind}", use

    def phase_seconds(self) -> dict[str, float]:
        """Seconds of the last block in what the script named, by name."""
        return {
            kind: use.seconds
            for (group, kind), use in self.last_block.uses.items()
            if group == PHASE
        }

    def received_rows(self) -> dict[str, int]:
        """Rows that ranks of a group sent to this one in the last block, by the group's name."""
        found: dict[str, int] = {}
        for group, rows in self.last_block.rows.items():
            name = self.names.get(group, UNNAMED)
            found[name] = found.get(name, 0) + rows
        return found

    def note_dispatch(self, group: str, given: list[int], taken: list[int]) -> None:
        """Rows by rank go out, and come in; what goes back where the last ones came from is an answer to them."""
        if self.counts and not self._inside:
            self._block.note_dispatch(group, given, taken)

    def phase_begins(self, name: str) -> bool:
        """The script begins what it calls ``name``; whether it counts: within another it belongs to that."""
        if self._phase is not None:
            return False
        self._phase = name, self._marks.now() if self.counts else None
        return True

    def phase_ends(self) -> None:
        """What it named last is over."""
        if self._phase is None:
            return
        name, began = self._phase
        self._phase = None
        if self._is_keeping and began is not None:
            self._block.add((PHASE, name), began, self._marks.now(), -1)

    def outer(
        self, key: Key, size: int, call: Callable[[], Any], flight: Flight | None = None
    ) -> Any:
        """Run a collective, or a wait for that in ``flight``."""
        if not self.counts or self._inside:
            return call()
        if self._block.is_full:
            self._block.lose_call()
            return call()
        if self._marks.captures:
            return call()
        self._inside = True
        here, began = self._marks.here, self._marks.now()
        try:
            return call()
        finally:
            ended = self._marks.now()
            self._block.add(key, began, ended if here else began, size, flight if here else ended)
            self._inside = False

    @property
    def is_on_device(self) -> bool:
        """Whether a block is under way whose marks are events."""
        return self.counts and isinstance(self._marks, DeviceMarks)

    def note_call(self, key: Key, size: int) -> None:
        """A call that makes nobody wait by itself."""
        if self._is_keeping and not self._inside:
            now = self._marks.now()
            self._block.add(key, now, now, size)

    def goes_on(self, handle: Any, key: Key, work: Any = None) -> None:
        """What ``key`` names goes on beside until ``handle`` (a work, or a result's address) is waited for.

        A ``work`` on the host says when it is over.
        """
        if len(self._begun) > _MAX_UNWAITED:
            self._begun.clear()
        flight = Flight(key, self._marks.now())
        self._begun[handle] = flight
        if work is None or self.is_on_device or key[1] in HANDED_ON:
            return
        marks = self._marks
        with contextlib.suppress(RuntimeError, AttributeError):  # works without futures
            work.get_future().add_done_callback(lambda _: setattr(flight, "over", marks.now()))

    def waited_for(self, handle: Any) -> Flight | None:
        """Which collective's end is waited for now."""
        return self._begun.pop(handle, None)

    def pass_begins(self, which: Pass) -> None:
        """A stage of a pipeline begins with a microbatch."""
        if self._is_keeping:
            self._block.add(which, self._marks.now())

    def pass_ends(self) -> None:
        if self._is_keeping:
            self._block.add("end", self._marks.now())

    def step_ended(self) -> None:
        """Add up what is done, between steps."""
        self._block.cut()

    def under_way(self) -> dict[str, float]:
        """Seconds in which calls of the last block were under way, named as ``waits``; without what is unknown."""
        found: dict[str, tuple[float, float]] = {}
        for name, use in self._iter_groups():
            known, unsure = found.get(name, (0.0, 0.0))
            found[name] = known + use.under_way, unsure + use.unsure
        return {
            name: known
            for name, (known, unsure) in found.items()
            if unsure <= _UNSURE * (known + unsure)
        }


def steps_of(readings: Iterable[tuple[Pass | str, float]]) -> list[list[tuple[Pass | None, float]]]:
    """Steps out of readings of a clock that stands still while another stage is waited for.

    A reading is taken as each pass begins, one (``"end"``) as it ends, and one (``"cut"``) between steps. A pass
    lasts until the next one of its step begins: what is done with its result belongs to it.
    """
    steps: list[list[tuple[Pass | None, float]]] = []
    step: list[tuple[Pass, float]] = []
    ended = cut = 0.0
    for which, reading in readings:
        if which == "end":
            ended = reading
        elif not isinstance(which, str):
            step.append((which, reading))
        else:
            if step:
                begins = [*(at for _, at in step), ended]
                took = [after - before for before, after in itertools.pairwise(begins)]
                rest = reading - cut - (ended - begins[0])
                steps.append([*zip((each for each, _ in step), took, strict=True), (None, rest)])
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
        ledger.goes_on(id(work), (key[0], kind), work)


def wrap_work(c10d: ModuleType) -> None:
    """Count what waits for a ``Work`` take, and stamp them."""
    work = getattr(c10d, "Work", None)
    if work is None:
        return
    original = work.wait

    @functools.wraps(original)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wait_in_flight(
            ledger.waited_for(id(self)), functools.partial(original, self, *args, **kwargs)
        )

    script.put(work, wait=wait)


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
        ledger.pass_begins((int(self.stage_index), "I" if half else kind, chunk))
        try:
            return original(self, chunk, *args, **kwargs)
        finally:
            ledger.pass_ends()

    return wrapper
