"""The clocks of a step: the stages that its thread went through, what kept it waiting, and when the step ended.

At each boundary between two stages one moment is read, so that the stages of a step add up to it exactly. On an
accelerator a boundary is an event in the device's own queue, from a pool, read once it is done: a wait that the
device never felt is none. Nothing here starts a thread, takes a lock or waits for anything but a queue. Steps go to
a ring (``protocol/stamped``); who reads it, a block of the ladder or a watch, is not known here.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from threading import get_ident
from typing import Any, NamedTuple

from stash.measure.agent.runner.device_stages import DeviceStages
from stash.measure.agent.script import NoStamps, bus
from stash.measure.linux.run_queue import NOTHING, Helpers, RunQueue
from stash.measure.protocol.stamped import (
    BEGAN,
    DELAY,
    ENDED,
    EXCHANGE_DELAY,
    FIELDS,
    GRADIENTS,
    INPUT_DELAY,
    INPUTS,
    LOADERS,
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

    def settled(self) -> float:
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
        return self.settled() if settled else self.now()


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
        self._since: float | None = None

    @property
    def paused(self) -> bool:
        return self._since is not None

    def pause(self, now: float) -> None:
        """Something other than training may begin (validation, the end of an epoch)."""
        if self._since is None:
            self._since = now

    def resume(self, now: float) -> None:
        """Training goes on."""
        if self._since is not None:
            self._in_step += now - self._since
            self._since = None

    def step(self, now: float, over: bool = False, own: float = 0.0) -> None:
        """A step ended; ``over`` if the loop may be, for all that is known; ``own`` of it was Stash's own work."""
        self.steps.append(now - self._last - self._in_step - own)
        self.pauses.append(self._in_step)
        self.interrupted += self._in_step
        self._in_step, self._last = 0.0, now
        self._since = now if over else None

    def skip(self, now: float) -> None:
        """What came since the last step's end is no step's."""
        self.interrupted += now - self._last
        self._in_step, self._last, self._since = 0.0, now, None

    def step_begins(self, now: float) -> None:
        """The script goes on now: what came since the last step's end belongs to none."""
        self._last = now
        if self._since is not None:
            self._since = now


_BETWEEN, _INPUT, _FORWARD = map(int, (StepStage.BETWEEN, StepStage.INPUT, StepStage.FORWARD))
_BACKWARD, _EXCHANGE, _OPTIMIZER = map(int, (StepStage.BACKWARD, StepStage.EXCHANGE, StepStage.OPTIMIZER))
_OF_A_LOOP = (int(StepStage.EPOCH_START), _INPUT, int(StepStage.TRANSFER), _FORWARD)
_BEFORE_PASSES = (_BETWEEN, _FORWARD, _OPTIMIZER)
_NOTHING = [0.0] * FIELDS
_SWITCHES_SECONDS = 0.1
"""The kernel is asked for the thread's context switches no more often than that."""


class StepMark(NamedTuple):
    """A moment within a step."""

    steps: int
    """Before it."""
    row: list[float]
    device_marks: int


class Stamps(NoStamps):
    """Stamps the steps of the thread that makes this object, and leaves them in its ring.

    A boundary costs two readings of a clock that all share: the moment, and the thread's delay (``RunQueue.at``).
    """

    def __init__(self, now: Callable[[], float], ring: StepRing | None = None) -> None:
        self.now = now
        self.ring = ring or StepRing()
        self._live = self.ring.live
        self._stage = _BETWEEN
        self._since = self._began = now()
        self._fresh = _NOTHING.copy()
        """The row of a step that begins: what holds for more than one step is in it."""
        self._row = _NOTHING.copy()
        """Of the step under way, as far as it has come."""
        self.attach()
        self._ready: Any = None
        """Since the last gradient of a backward pass was ready: the thread's delay then, and what its helpers had."""
        self._handles: list[Any] = []
        self._device: DeviceStages | None = None
        self._followed: Any = None
        self._updated = 0.0
        """Of the stage ``OPTIMIZER`` of the step under way, what other optimizers took than the counted one."""
        self._asked = 0.0
        self.steps = 0
        self._block = self._before = 0
        self._loops: dict[int, float] = {}
        self._exchanged = self.in_windows = NOTHING
        """Of the threads that exchange, in all windows of exchange since ``begin``."""

    def count_from(self, steps: int) -> None:
        """So many steps have ended so far."""
        self.steps = steps

    def attach(self) -> None:
        """From now on it is the calling thread that trains."""
        self._thread, self._passes = get_ident(), 0
        self._queue = RunQueue()
        self._helpers = Helpers(self._queue.thread)
        self._helpers.look()  # who has worked by the next look is followed: from the first block on
        self._delayed = self._queue.delay()

    @property
    def of_this_thread(self) -> bool:
        """Whether it is the calling thread that trains."""
        return get_ident() == self._thread

    def delay_at(self, now: float) -> float:
        """Seconds that the training thread was ready to run and had no core, by ``now``."""
        return self._queue.at(now)

    @property
    def known(self) -> bool:
        """Whether this kernel counts delays."""
        return self._queue.known

    @property
    def sees_exchange(self) -> bool:
        """Whether the last gradient of a step is known, so that windows of exchange are."""
        return bool(self._handles)

    def follow_device(self, device: Any = None) -> None:
        """From now on boundaries are events in the queue of a CUDA ``device``, the current one by itself.

        A rank may train on another one than the current; left out later on, it is that one again.
        """
        self._followed = self._followed if device is None else device
        self._device = DeviceStages(self._followed)

    @property
    def follows_device(self) -> bool:
        return self._device is not None

    def enter(self, stage: int) -> int:
        """As in ``NoStamps``; other threads are not followed."""
        before = self._stage
        if get_ident() == self._thread:
            self._move(stage, self.now())
        return before

    def batch_made(self, stage: int) -> int | None:
        """As in ``NoStamps``; what came before a forward pass of the step was no optimizer's, but for its update."""
        before = self._stage
        if before == stage or before not in _BEFORE_PASSES or get_ident() != self._thread:
            return None
        if before == _OPTIMIZER and stage == _FORWARD:
            self._row[_BETWEEN] += self._row[_OPTIMIZER] - self._updated
            self._row[_OPTIMIZER] = self._updated
            self._stage = _BETWEEN
            if self._device is not None:
                self._device.rename(_OPTIMIZER, _BETWEEN)
        self._move(stage, self.now())
        return before

    def mark(self) -> StepMark:
        """This moment, for ``rename_since``."""
        return StepMark(self.steps, self._row.copy(), 0 if self._device is None else self._device.marks)

    def rename_since(self, mark: StepMark, stage: int) -> None:
        """What the step under way has had of waits, copies and forward passes since then was ``stage``."""
        row, before = self._row, mark.row
        if mark.steps != self.steps or get_ident() != self._thread:
            return
        for each in _OF_A_LOOP:
            row[stage] += row[each] - before[each]
            row[each] = before[each]
            if self._device is not None:
                self._device.rename_from(mark.device_marks, each, stage)
        row[INPUTS:GRADIENTS] = before[INPUTS:GRADIENTS]
        row[INPUT_DELAY] = before[INPUT_DELAY]

    def other_stepped(self, beside: bool) -> None:
        """Another optimizer stepped than the one that steps are counted at; ``beside`` it: after the same pass."""
        if get_ident() != self._thread:
            return
        row, beside = self._row, beside and self._stage == _BETWEEN
        self._move(self._stage, self.now())
        if beside:
            row[_OPTIMIZER] += row[_BETWEEN]
            row[_BETWEEN] = 0.0
        self._updated = row[_OPTIMIZER]
        if self._device is not None:
            self._device.update_ends(beside)

    def _move(self, stage: int, now: float) -> None:
        self._row[self._stage] += now - self._since
        self._stage, self._since = stage, now
        self._live[0] = stage
        if self._device is not None:
            self._device.mark(stage, now)

    def follow(self, parameters: Sequence[Any]) -> None:
        """The last gradient of a backward pass is that of one of these ``parameters``."""
        self.let_go()
        self._helpers.look()
        hooks = [parameter.register_post_accumulate_grad_hook for parameter in parameters]
        self._handles = [hook(self._last_gradient) for hook in hooks]
        self._fresh[GRADIENTS] = self._row[GRADIENTS] = 1.0

    def let_go(self) -> None:
        """No window of exchange is seen any more."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._fresh[GRADIENTS] = self._row[GRADIENTS] = 0.0

    def _last_gradient(self, parameter: Any) -> None:
        """Called by the thread of the backward pass, which on CPUs is the script's; must not fail there."""
        try:
            self._is_ready()
        except Exception as error:
            self.let_go()
            bus.listener.give_up(error)

    def _is_ready(self) -> None:
        now = self.now()
        if self._stage == _EXCHANGE:  # a later one than was taken for the last: its wait was none
            self._row[_BACKWARD] += now - self._since
            self._since = now
            if self._device is not None:
                self._device.put_off()
        self._move(_EXCHANGE, now)
        self._ready = (self._queue.at(now), self._helpers.exchange() if self._helpers.exchanging else None)

    def backward_begins(self) -> None:
        if get_ident() != self._thread:
            return
        self._passes += 1
        if self._passes == 1:  # one inside another (checkpointing) is part of it
            self._move(_BACKWARD, self.now())

    def backward_ended(self) -> None:
        if get_ident() != self._thread:
            return
        self._passes -= 1
        if self._passes > 0:
            return
        now, self._passes = self.now(), 0
        self._move(_OPTIMIZER, now)
        if self._ready is not None:
            delay, helpers = self._ready
            self._ready = None
            self._row[EXCHANGE_DELAY] += self._queue.at(now) - delay
            if helpers is not None:
                self.in_windows += self._helpers.exchange() - helpers

    def wait_begins(self, now: float) -> float:
        if get_ident() != self._thread:
            return 0.0
        self._move(_INPUT, now)
        return self._queue.at(now)

    def wait_ends(self, now: float, delay: float, loader: int, stage: int = _FORWARD) -> None:
        if get_ident() != self._thread:
            return
        self._row[INPUTS + min(loader, LOADERS - 1)] += now - self._since
        self._move(stage, now)
        self._row[INPUT_DELAY] += self._queue.at(now) - delay

    def step_ends(self, now: float) -> None:
        """A step of the script ended ``now``; what follows until ``step_begins`` is Stash's own work."""
        row = self._row
        row[self._stage] += now - self._since
        self._stage, self._since = _BETWEEN, now
        self._live[0] = _BETWEEN
        self._updated, self._passes = 0.0, 0
        if now - self._asked > _SWITCHES_SECONDS:
            self._asked = now
            row[SWITCHES] = self._fresh[SWITCHES] = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        self.steps = row[NUMBER] = self.steps + 1
        delay = self._queue.at(now)
        row[BEGAN], row[ENDED], row[DELAY] = self._began, now, delay - self._delayed
        if self._device is None:
            self.ring.write(row)
            row[:] = self._fresh
        else:
            self._device.mark(_BETWEEN, now)
            self._device.close(row)
            self._row = self._fresh.copy()
            for finished in self._device.done():
                self.ring.write(finished)
        self._began, self._delayed = now, delay

    def step_begins(self) -> None:
        """The script goes on."""
        self._since = self._began = now = self.now()
        self._delayed = self._queue.at(now)
        if self._device is not None:
            self._device.begin(now)

    def begin(self) -> None:
        """Forget the steps so far: a block begins."""
        self._helpers.look()
        self.flush()
        self._block, self._before, self.in_windows = self.ring.written, self.steps, NOTHING
        self._loops, self._exchanged = self._helpers.loop_delays(), self._helpers.exchange()
        if self._device is not None:
            self._device.follow_leads()

    def flush(self) -> None:
        """The device's queue is empty: what was on its way to the ring gets there."""
        if self._device is not None:
            for finished in self._device.done():
                self.ring.write(finished)

    def of_block(self) -> list[StampedStep]:
        """The steps since ``begin``; on a device all of them once its queue is empty."""
        self.flush()
        return [step for step in self.ring.rows(self._block) if step.number > self._before]

    def host_leads(self, now: float) -> tuple[float, ...]:
        """Of each step since ``begin``, the most that the host was ahead of the device; none on a CPU.

        The device's queue was empty ``now``, and is.
        """
        return () if self._device is None else self._device.leads(now, self._before)

    def loop_delays(self) -> tuple[float, ...]:
        """Since ``begin``, of each thread that shares the training thread's parallel loops."""
        now = self._helpers.loop_delays()
        return tuple(now[thread] - before for thread, before in self._loops.items() if thread in now)

    def helper_cpu(self) -> float:
        """Seconds on a core since ``begin`` of the threads that exchange."""
        return (self._helpers.exchange() - self._exchanged).ran
