"""The clocks of a step: the stages that its thread went through, what kept it waiting, and when the step ended.

Which stage an event begins is a table's (``step_stages``); here are its effects. At each boundary between two stages
one moment is read. On an accelerator a boundary is an event in the device's own queue, from a pool, read once it is
done: a wait that the device never felt is none. Nothing here starts a thread, takes a lock or waits for anything but
a queue. Steps go to a ring (``protocol/stamped``); who reads it, a block of the ladder or a watch, is not known here.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple

from stash.measure.agent.runner.device_stages import DeviceStages
from stash.measure.agent.runner.step_stages import (
    DELAY_READ,
    STAGES,
    Mark,
    Stages,
    StepUnderWay,
    fold_marks,
)
from stash.measure.agent.script import bus
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.linux.run_queue import HOLDS, NOTHING, Helpers, RunQueue, ScheduledSeconds
from stash.measure.protocol.stamped import (
    GRADIENTS,
    NUMBER,
    SWITCHES,
    StampedStep,
    StepRing,
    StepStage,
)


class Clock:
    """Reads times of the devices a rank trains on; a CPU has no queue to wait for."""

    def __init__(self) -> None:
        self.device: Any = None
        """Where batches go: the first accelerator among the parameters' devices, else the CPU."""
        self.gpu: str | None = None
        """Its UUID as NVML knows it, if it is a CUDA device."""
        self.runs_ahead = False
        """Whether there are devices whose queues go on while the host does something else."""
        self._queues: list[Any] = []
        self.ended = 0.0
        """When the script's last step ended, on the host's clock."""

    def watch(self, devices: Iterable[Any]) -> None:
        """Learn the devices from those of the parameters.

        Parameters kept on the host (offloading) do not make a job of the CPU: its work is on the current device.
        """
        import torch

        distinct = dict.fromkeys(devices)
        self._queues = [device for device in distinct if device.type != "cpu"]
        if not self._queues and torch.cuda.is_initialized():
            self._queues = [torch.device("cuda", torch.cuda.current_device())]
        self.runs_ahead = bool(self._queues)
        self.device = self._queues[0] if self._queues else torch.device("cpu")
        if self.device.type == "cuda":
            self.gpu = f"GPU-{getattr(torch.cuda.get_device_properties(self.device), 'uuid', '')}"

    now = staticmethod(time.perf_counter)
    """Seconds, without waiting for any device."""

    def synchronize(self) -> float:
        """Seconds, once everything submitted to the devices is done."""
        for device in self._queues:
            getattr(sys.modules["torch"], device.type).synchronize(device)
        return time.perf_counter()

    def step_ends(self) -> None:
        """A step of the script ends now; what follows, until the script goes on, is Stash's own work."""
        self.ended = self.now()

    def end_of_step(self, settled: bool) -> float:
        """Seconds at which the step ended; where devices run ahead: now, ``settled`` or not."""
        if not self.runs_ahead:
            return self.ended
        return self.synchronize() if settled else self.now()


class BlockClock:
    """Times the steps of a block under way, less what was not training and what Stash itself took.

    A loop that ends may go on in another epoch, or may have ended early (frameworks read a batch ahead). So what
    follows a pause is training after all if a step ends before the loop goes on.
    """

    def __init__(self, started: float) -> None:
        self.started = self._last = started
        self.steps: list[float] = []
        self.pauses: list[float] = []
        """Of each step: what within it was not training."""
        self.interrupted = 0.0
        self._in_step = 0.0
        self.paused_since: float | None = None

    def pause(self, now: float) -> None:
        """Something other than training may begin (validation, the end of an epoch)."""
        if self.paused_since is None:
            self.paused_since = now

    def resume(self, now: float) -> None:
        """Training goes on."""
        if self.paused_since is not None:
            self._in_step += now - self.paused_since
            self.paused_since = None

    def step(self, now: float, over: bool = False, own: float = 0.0) -> None:
        """A step ended; ``over`` if the loop may be, for all that is known; ``own`` of it was Stash's own work."""
        self.steps.append(now - self._last - self._in_step - own)
        self.pauses.append(self._in_step)
        self.interrupted += self._in_step
        self._in_step, self._last = 0.0, now
        self.paused_since = now if over else None

    def skip(self, now: float) -> None:
        """What came since the last step's end is no step's."""
        self.interrupted += now - self._last
        self._in_step, self._last, self.paused_since = 0.0, now, None

    def step_begins(self, now: float) -> None:
        """The script goes on now: what came since the last step's end belongs to none."""
        self._last = now
        if self.paused_since is not None:
            self.paused_since = now


_BETWEEN = int(StepStage.BETWEEN)
_SWITCHES_SECONDS = 0.1
"""The kernel is asked for the thread's context switches no more often than that."""


class StepMark(NamedTuple):
    """A moment within a step."""

    steps: int
    """Before it."""
    marks: int
    """Of the step, before it."""


class ExchangeWindows:
    """What a step's helpers do between its last gradient and the end of its backward pass."""

    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        self._open: ScheduledSeconds | None = None
        self.seen = NOTHING
        """Of the threads that exchange, in all windows since it was ``forgotten``."""

    def open_window(self) -> None:
        """The last gradient is ready, for all that is known."""
        self._open = self._helpers.read_exchange() if self._helpers.exchanging else None

    def close(self) -> None:
        """The backward pass is over."""
        if self._open is not None:
            self.seen += self._helpers.read_exchange() - self._open
            self._open = None

    def forget(self) -> None:
        self.seen = NOTHING


@dataclass(frozen=True)
class FollowedThread:
    """The thread that trains, and the others that work for its steps."""

    number: int
    queue: RunQueue
    helpers: Helpers
    windows: ExchangeWindows

    @classmethod
    def follow_current(cls) -> FollowedThread:
        """The calling one."""
        queue = RunQueue()
        helpers = Helpers(queue.thread)
        helpers.find_threads()  # who has worked by the next look is followed: from the first block on
        return cls(get_ident(), queue, helpers, ExchangeWindows(helpers))


_FIELDS = 4
_MOST_EVENTS, _MOST_OF_STEPS = 50_000 * _FIELDS, 2000 * _FIELDS
"""Fields of events that are kept until somebody asks what they make of steps; the latter at a step's end, after which
time is no step's."""


class BlockBegun(NamedTuple):
    """What there was when a block began."""

    rows: int = 0
    """In the ring."""
    steps: int = 0
    loops: Mapping[int, float] = MappingProxyType({})
    """Delays of each thread of parallel loops."""
    exchanged: ScheduledSeconds = NOTHING


class Stamps:
    """Stamps the steps of the thread that makes this object, by a table of ``stages``, and leaves them in its ring.

    A boundary costs two readings of a clock that all share: the moment, and the thread's delay (``RunQueue.sample``).
    A ``ring`` that is given has somebody who reads it at any time, and a device's queue gets each boundary at
    once. Else events are only kept, and what they make of steps is found out when a block is over.
    """

    def __init__(
        self, now: Callable[[], float], ring: StepRing | None = None, stages: Stages = STAGES
    ) -> None:
        self.now = now
        self.ring = ring or StepRing()
        self.observers: list[Callable[[int], None]] = []
        """Told of each event's stage, of steps that are looked at closely."""
        self._live = None if ring is None else ring.live
        self._events: list[Any] = []
        """Of each the event, when it was, the thread's delay by then, and what comes with it, one after the other: an
        object for each would set off Python's collector, which a job that leaves no garbage never does."""
        self._counted: list[float] = []
        """Of each step that ended its number, the thread's context switches, and whether its last gradient was seen."""
        self.followed = FollowedThread.follow_current()
        self._device: DeviceStages | None = None
        self._step = StepUnderWay((_BETWEEN, now(), self.followed.queue.delay(), 0, None), stages)
        self.steps = 0
        """So many have ended."""
        self._switches = 0.0, 0.0
        """Involuntary context switches of the thread, and when the kernel was asked for them."""
        self._block = BlockBegun()
        self._handles: list[Any] = []
        """Of hooks that see a step's last gradients."""

    def count_from(self, steps: int) -> None:
        """So many steps have ended so far."""
        self.steps = steps

    def attach(self) -> None:
        """From now on it is the calling thread that trains."""
        self._fold()
        self.followed = FollowedThread.follow_current()
        self._step.count_delays_from(self.followed.queue.delay())

    @property
    def is_this_thread(self) -> bool:
        """Whether it is the calling thread that trains."""
        return get_ident() == self.followed.number

    def delay_at(self, now: float) -> float:
        """Seconds that the training thread was ready to run and had no core, by ``now``."""
        return self.followed.queue.sample(now)

    @property
    def sees_delays(self) -> bool:
        """Whether this kernel counts delays."""
        return self.followed.queue.is_supported

    @property
    def sees_exchange(self) -> bool:
        """Whether the last gradient of a step is known, so that windows of exchange are."""
        return bool(self._handles)

    @property
    def window_times(self) -> ScheduledSeconds:
        """Of the threads that exchange, in all windows of exchange since ``begin``."""
        return self.followed.windows.seen

    def follow_device(self, device: Any = None) -> None:
        """From now on boundaries are events in the queue of a CUDA ``device``, the current one by itself.

        A rank may train on another one than the current; left out later on, it is that one again.
        """
        if device is None and self._device is not None:
            device = self._device.device
        self._fold()
        self._device = DeviceStages(device)
        self._step.follow(self._device.record_event)

    @property
    def follows_device(self) -> bool:
        return self._device is not None

    def tell(self, event: ThreadEvent, about: Any = None) -> None:
        """Something happened on the calling thread; another one than that which trains is not followed."""
        if get_ident() == self.followed.number:
            self.handle(event, self.now(), about)

    def handle(self, event: ThreadEvent, now: float, about: Any = None) -> None:
        """The next event of the thread that trains; ``about``: of reads the loader, of an evaluation its mark."""
        queue, events = self.followed.queue, self._events
        if now - queue.read_at > HOLDS and DELAY_READ[event]:
            queue.sample(now)
        if event is ThreadEvent.STEP_ENDED:
            if len(events) > _MOST_OF_STEPS:
                self._fold()
            self._count_step(now)
        elif event is ThreadEvent.BACKWARD_ENDED and self._handles:
            queue.sample(now)
            self.followed.windows.close()
        elif event is ThreadEvent.LOOP_WAS_EVALUATION:
            # one that began in an earlier step has its row already
            if about.steps != self.steps:
                return
            about = about.marks
        events += (event, now, queue.latest, about)
        is_kept = self._device is None and self._live is None and not self.observers
        if not is_kept or len(events) > _MOST_EVENTS:
            self._fold()

    def _count_step(self, now: float) -> None:
        """Keep the step's number, context switches by its end, and whether its last gradient was seen."""
        switches, asked = self._switches
        if now - asked > _SWITCHES_SECONDS:
            switches = float(resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw)
            self._switches = switches, now
        self.steps += 1
        self._counted += (self.steps, switches, bool(self._handles))

    def _fold(self) -> None:
        """Find out what the events that came make of steps."""
        events, step = self._events.copy(), self._step
        counted = iter(self._counted.copy())
        self._events.clear()
        self._counted.clear()
        for event, now, delay, about in zip(*[iter(events)] * _FIELDS, strict=True):
            if event is ThreadEvent.STEP_ENDED:
                # what follows until ``STEP_BEGINS`` is Stash's own work
                self._write_row(tuple(islice(counted, 3)), step.end(now, delay))
            else:
                step.handlers[event](now, delay, about)
        if self._live is not None:
            self._live[0] = step.stage
        for observe in self.observers:
            observe(step.stage)

    def _write_row(self, counted: tuple[float, ...], marks: list[Mark]) -> None:
        row = fold_marks(marks)
        row[NUMBER], row[SWITCHES], row[GRADIENTS] = counted
        if self._device is None:
            self.ring.write(row)
        else:
            self._device.close(row, marks)
            self._write_finished(self._device)

    def _write_finished(self, device: DeviceStages) -> None:
        """Steps that the device has come to the end of."""
        for finished in device.take_finished():
            self.ring.write(finished)

    def mark(self) -> StepMark:
        """This moment, for ``LOOP_WAS_EVALUATION``."""
        self._fold()
        return StepMark(self.steps, len(self._step.marks))

    def follow(self, parameters: Sequence[Any]) -> None:
        """The last gradient of a backward pass is that of one of these ``parameters``."""
        self.let_go()
        self.followed.helpers.find_threads()
        hooks = [parameter.register_post_accumulate_grad_hook for parameter in parameters]
        self._handles.extend(hook(self._last_gradient) for hook in hooks)

    def let_go(self) -> None:
        """No window of exchange is seen any more."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _last_gradient(self, parameter: Any) -> None:
        """Called by the thread of the backward pass, which on CPUs is the script's; must not fail there."""
        try:
            self.handle(ThreadEvent.GRADIENT_READY, self.now())
            self.followed.windows.open_window()
        except Exception as error:
            self.let_go()
            bus.listener.give_up(error)

    def begin(self) -> None:
        """Forget the steps so far: a block begins."""
        helpers = self.followed.helpers
        helpers.find_threads()
        self.flush()
        self.followed.windows.forget()
        self._block = BlockBegun(
            self.ring.rows_written, self.steps, helpers.loop_delays(), helpers.read_exchange()
        )
        if self._device is not None:
            self._device.follow_leads()

    def flush(self) -> None:
        """Steps get to the ring; those that the device has come to the end of, once its queue is empty all of them."""
        self._fold()
        if self._device is not None:
            self._write_finished(self._device)

    def block_steps(self) -> list[StampedStep]:
        """The steps since ``begin``; on a device all of them once its queue is empty."""
        self.flush()
        return [
            step for step in self.ring.rows(self._block.rows) if step.number > self._block.steps
        ]

    def host_leads(self, now: float) -> tuple[float, ...]:
        """Of each step since ``begin``, the most that the host was ahead of the device; none on a CPU.

        The device's queue was empty ``now``, and is.
        """
        return () if self._device is None else self._device.measure_leads(now, self._block.steps)

    def loop_delays(self) -> tuple[float, ...]:
        """Since ``begin``, of each thread that shares the training thread's parallel loops."""
        now = self.followed.helpers.loop_delays()
        return tuple(
            now[thread] - before for thread, before in self._block.loops.items() if thread in now
        )

    def helper_cpu(self) -> float:
        """Seconds on a core since ``begin`` of the threads that exchange."""
        return (self.followed.helpers.read_exchange() - self._block.exchanged).ran
