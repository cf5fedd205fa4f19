"""Listens to a whole training run, step by step, and leaves its stamps in this rank's ring: the monitor's listener.

The script runs as if Stash were not there: no scope is switched, no batch replayed, no file kept; no thread, lock,
socket or synchronisation is added. What goes wrong in here is said once, in the ring and on standard error, and from
then on nothing is stamped. Who reads the ring is not known here.
"""

from __future__ import annotations

import gc
import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import current_process
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, TypeVar

from stash.measure.agent import private, script
from stash.measure.agent.runner.optimizers import Optimizers, SeenOptimizer
from stash.measure.agent.runner.stamps import Stamps, StepMark
from stash.measure.agent.runner.watch_duties import EVERY, ScriptLines, StepSample, StepTrace, WatchersMeeting
from stash.measure.agent.wraps import steps
from stash.measure.agent.wraps.stages import BatchCopies, CalledModels
from stash.measure.protocol.orders import Orders, WatchRequest, current, read
from stash.measure.protocol.stamped import LOADERS, StepRing, StepStage
from stash.measure.protocol.watch_folder import attach_file

T = TypeVar("T")
_FOLLOWED = 3
"""Parameters whose gradients are the last of a backward pass, as it was seen to be."""
_LEARNS_AT = (2, 20)
"""Steps of which the order of gradients is learned: DDP makes its buckets again after the first."""
_LEARNS_EVERY = 2000
_LOOKS_AT = (5, 20)
"""Steps in which models are looked for: by then a script that compiles its model has mostly done so."""
_LOOKS_SECONDS = 5.0
_BETWEEN, _FORWARD, _EPOCH_START = int(StepStage.BETWEEN), int(StepStage.FORWARD), int(StepStage.EPOCH_START)
_EVALUATION, _COLLECTOR = int(StepStage.EVALUATION), int(StepStage.COLLECTOR)
_TRAINS_AFTER = 3
"""Batches that a backward pass each has followed."""
_FULL_COLLECTION = 2
"""The generation of objects that takes long to look through."""


def start(optimizer_module: ModuleType) -> None:
    """Begin to listen to this process's script; called with ``torch.optim.optimizer`` once it was imported."""
    orders = current()
    if orders is not None:
        _listen(optimizer_module, partial(WatchedRun, orders))


def wait_for_watcher(optimizer_module: ModuleType) -> None:
    """Begin to listen once a watcher asks for it; called as ``start`` is."""
    _listen(optimizer_module, AwaitedRun)


def _listen(optimizer_module: ModuleType, listener: Callable[[], script.Listener]) -> None:
    script.subscribe(listener())
    register_after_fork(optimizer_module, lambda _: _listen_in_fork(listener))
    steps.wrap_optimizer(optimizer_module)


def _listen_in_fork(listener: Callable[[], script.Listener]) -> None:
    """A process forked before any training may be the one that trains; a loader's workers are daemons and are not."""
    orders = current()
    over = orders is not None and not orders.files.path.is_dir()
    if not (over or current_process().daemon or script.passes()):
        script.subscribe(listener())
        Finalize(None, script.exits, exitpriority=1)  # what ``atexit`` is to a process that is no fork


class AwaitedRun(script.Listener):
    """Counts steps until a watcher leaves its orders; a look a second."""

    def __init__(self) -> None:
        self.listens = True
        self._file = attach_file(os.getpid())
        self.steps, self._next = 0, 0.0
        self._counted: Callable[[], Any] = lambda: None
        """The optimizer that steps are counted at, while the script has it."""

    def stepped(self, optimizer: Any) -> None:
        counted = self._counted()
        if counted is None:
            self._counted = weakref.ref(optimizer)
        self.steps += counted is None or optimizer is counted
        now = perf_counter()
        if now < self._next:
            return
        self._next = now + 1.0
        with suppress(OSError, ValueError):
            orders = read(Path(_left_by_own_user(self._file)))
            if orders is not None:
                run = WatchedRun(orders)
                run.counted_before, run.awaited = self.steps, self
                script.subscribe(run)


def _left_by_own_user(path: Path) -> str:
    """What is in a file whose name others know, and may have taken: opened at no risk, read only of the own user.

    Raises OSError or ValueError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            raise OSError(f"{path} is not this user's")
        return os.read(descriptor, 4096).decode()
    finally:
        os.close(descriptor)


@dataclass
class _BegunLoop:
    """A loop that took an iterator, with gradients on, and that no backward pass has followed yet."""

    source: int
    """The identity of what its batches come from."""
    passes: int
    """Backward passes before it."""
    mark: StepMark
    batches: int = 0


class WatchedLoops(script.LoopListener):
    """The waits of one process for its loaders, each by its number and name.

    Loops without gradients are evaluation, and so are those of several batches that end without a backward pass; but
    not those of which a backward pass follows each batch.
    """

    def __init__(self) -> None:
        self.stamps: Stamps | None = None
        self._begun: _BegunLoop | None = None
        self._evaluated_last = (0, 0, 0)
        """Without gradients: the latest source, backward passes then, and batches in a row that one pass followed."""
        self._trained_on: set[int] = set()
        """Sources that steps train on though they are read without gradients."""
        self._numbers: dict[int, int] = {}
        """By the identity of a source that is still there."""
        self._known: list[tuple[type[Any], Callable[[], Any]]] = []
        """Of each number: its source's class, and what gives the source, or ``None`` once that is gone."""

    def started(self, loader: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, the iterator that a loop asks ``loader`` for."""
        stamps = self.stamps
        if stamps is None or not stamps.of_this_thread:
            return take(*arguments)
        is_training = _has_gradients()
        if is_training:
            self._begun = _BegunLoop(id(loader.dataset), script.passes(), stamps.mark())
        before = stamps.enter(_EPOCH_START if is_training else _EVALUATION)
        try:
            return take(*arguments)
        finally:
            stamps.enter(before)

    def waited(self, source: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, what the training thread waits for; ``source`` is what it comes from."""
        stamps = self.stamps
        if stamps is None:
            return take(*arguments)
        if not _has_gradients() and not self._trains_on(id(source)):
            return self._evaluated(stamps, take, *arguments)
        number = self._numbers.get(id(source))
        if number is None:
            number = self._number(source)
        begun = self._begun
        if begun is not None and begun.source == id(source):
            return self._waited_since(begun, stamps, number, take, *arguments)
        return self._waited_in_step(stamps, number, take, *arguments)

    def _trains_on(self, source: int) -> bool:
        """Whether steps train on what is read without gradients, as far as the batches before this one show."""
        before, passes, followed = self._evaluated_last
        now = script.passes()
        followed = followed + 1 if source == before and now == passes + 1 else 0
        self._evaluated_last = source, now, followed
        if followed >= _TRAINS_AFTER:
            self._trained_on.add(source)
        return source in self._trained_on

    def _evaluated(self, stamps: Stamps, take: Callable[..., T], *arguments: Any) -> T:
        """Its stage lasts from a loop's first batch to its end, forward passes included."""
        stamps.enter(_EVALUATION)
        try:
            return take(*arguments)
        except BaseException:
            stamps.enter(_BETWEEN)
            raise

    def _waited_since(
        self, begun: _BegunLoop, stamps: Stamps, number: int, take: Callable[..., T], *arguments: Any
    ) -> T:
        """The first batch of a loop ends the start of its epoch; a loop that ends without a pass was evaluation."""
        begun.batches += 1
        if begun.batches == 1:
            stamps.enter(_EPOCH_START)
            try:
                return take(*arguments)
            finally:
                stamps.enter(_FORWARD)
        if script.passes() > begun.passes:
            self._begun = None
        try:
            return self._waited_in_step(stamps, number, take, *arguments)
        except StopIteration:
            if self._begun is not None and begun.batches > 2:
                self._begun = None
                stamps.rename_since(begun.mark, _EVALUATION)
            raise

    @staticmethod
    def _waited_in_step(stamps: Stamps, number: int, take: Callable[..., T], *arguments: Any) -> T:
        delay = stamps.wait_begins(perf_counter())
        try:
            batch = take(*arguments)
        except BaseException:
            stamps.wait_ends(perf_counter(), delay, number, _BETWEEN)
            raise
        stamps.wait_ends(perf_counter(), delay, number)
        return batch

    @property
    def seen(self) -> bool:
        """Whether there was any wait."""
        return bool(self._known)

    def _number(self, source: Any) -> int:
        """A new one, or that of one of its class that is gone: scripts make their loaders again, in every epoch."""
        kind, key = type(source), id(source)
        gone = (number for number, (known, there) in enumerate(self._known) if known is kind and there() is None)
        number = self._numbers[key] = next(gone, len(self._known))
        there: Callable[[], Any] = str  # a list, say, cannot be referred to weakly: it is there for good
        with suppress(TypeError):
            there = weakref.ref(source, lambda _: self._numbers.pop(key, None))
        self._known[number : number + 1] = [(kind, there)]
        self.name_loaders()
        return number

    def name_loaders(self) -> None:
        if self.stamps is not None:
            names = (f"{kind.__name__}{f' {at + 1}' if at else ''}" for at, (kind, _) in enumerate(self._known))
            self.stamps.ring.name_loaders(list(names)[:LOADERS])


class WatchedRun(script.Listener):
    """The one listener of a training process whose run is watched."""

    def __init__(self, orders: Orders) -> None:
        self.loops: WatchedLoops = WatchedLoops()
        self.listens = True
        self._folder = Path(orders.folder)
        self._optimizers = Optimizers()
        self._counted: SeenOptimizer | None = None
        self.stamps = script.NoStamps()
        self._stamps: Stamps | None = None
        """The same, while it notes anything."""
        self._ranks = 1
        self._order: GradientOrder | None = None
        self.each_step: Any = None
        """Called after each step, by who listens from inside the script."""
        self._learn_at = _LEARNS_AT[0]
        self._rank = 0
        self._sample: StepSample | None = None
        self._meeting: WatchersMeeting | None = None
        self._asked = WatchRequest(0)
        self._resting: Stamps | None = None
        """While nothing is stamped: paused, or traced."""
        self._trace: StepTrace | None = None
        self._lines: ScriptLines | None = None
        self._last_ready: list[Any] = []
        self.counted_before: int | None = 0
        """Steps that were taken before this object listened; ``None``: to be found, alike on all ranks."""
        self.awaited: AwaitedRun | None = None
        """What listens again once the watcher has left."""
        self._looks_at = 0.0
        self._groups_at = 0
        self._copies: BatchCopies | None = None
        """Where the job trains on CUDA."""
        self._look_at = _LOOKS_AT[0]
        self._look: CalledModels | None = None
        self._interrupted = _BETWEEN
        """What a collection of garbage came between."""

    def give_up(self, error: Exception) -> None:
        """Stamp nothing any more, and say why, once."""
        text = f"stash: this rank is not watched any more ({type(error).__name__}: {str(error)[:200]})"
        self.listens = False
        script.unsubscribe()
        stamps, self._resting = self._stamps or self._resting, None
        if stamps is not None:
            stamps.ring.note(text)
            self._leave(stamps)
        print(text, file=sys.stderr)

    def _leave(self, stamps: Stamps) -> None:
        """Note nothing any more."""
        stamps.let_go()
        self._note_in(None)
        if self._collects in gc.callbacks:
            gc.callbacks.remove(self._collects)
        for learning in (self._order, self._look):
            if learning is not None:
                learning.end()

    def stepped(self, optimizer: Any) -> None:
        now = perf_counter()
        try:
            own = self._optimizers.stepped(optimizer)
            stamps = self._stamps
            if stamps is None and self._resting is None:
                self._counted = own
                self._begin(optimizer)
                return
            if own is not self._counted and not self._takes_over(own):
                if stamps is not None and self._counted is not None:
                    stamps.other_stepped(beside=own.passes == self._counted.passes)
                return
            if stamps is None:
                self._rest()
                return
            stamps.step_ends(now)
            if self._copies is not None:
                self._copies.step_ends()
            if self._look_at and stamps.steps >= self._look_at:
                self._look_for_models(stamps.steps)
            if self._ranks > 1:
                self._among_ranks(now)
            if stamps.ring.live[2] != self._asked.number:
                self._answer()
            if self._lines is not None and self._lines.step():
                self._lines = None
            if self.awaited is not None and now > self._looks_at:
                self._look_for_watcher(now, self.awaited)
            if self.each_step is not None:
                self.each_step()
        except Exception as error:
            self.give_up(error)

    def skipped(self, optimizer: Any) -> None:
        self.stepped(optimizer)

    def _note_in(self, stamps: Stamps | None) -> None:
        """From now on what steps do is noted there; nowhere, if it is ``None``."""
        self._stamps = self.loops.stamps = stamps
        self.stamps = stamps or script.NoStamps()

    def _takes_over(self, own: SeenOptimizer) -> bool:
        """Another optimizer than the counted one stepped: whether steps are counted at it from now on."""
        assert self._counted is not None
        successor = self._optimizers.successor(self._counted)
        if successor is None:
            return False
        self._counted = successor
        return successor is own

    def _begin(self, optimizer: Any) -> None:
        """At the first step: which rank this is, and on what it trains. What came before was setting up."""
        rank, ranks, local, node = _place()
        self._ranks = ranks
        ring = StepRing(self._folder / f"ring.{rank}.{os.getpid()}", rank, ranks, local, node)
        stamps = Stamps(perf_counter, ring)
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        device = next((each.device for each in parameters if each.device.type != "cpu"), None)
        ring.name_device("cpu" if device is None else device.type)
        if device is not None and device.type == "cuda":
            stamps.follow_device(device)
            self._copies = BatchCopies.of_process(device)
        self._note_in(stamps)
        self.loops.name_loaders()
        gc.callbacks.append(self._collects)
        self._rank, stamps.steps = rank, self.counted_before or 0
        if self.counted_before is None and ranks > 1:
            self._groups_at = sum(private.sequence_numbers().values())
        self._learn_at += stamps.steps
        self._look_at += stamps.steps
        if ranks > 1:
            self._sample = StepSample(stamps)
            if local == 0 and ranks > _number("LOCAL_WORLD_SIZE", ranks):
                self._meeting = WatchersMeeting(self._folder, node)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        """Python looks for garbage."""
        if info["generation"] < _FULL_COLLECTION:
            return
        if phase == "start":
            self._interrupted = self.stamps.enter(_COLLECTOR)
        else:
            self.stamps.enter(self._interrupted)

    def _look_for_watcher(self, now: float, awaited: AwaitedRun) -> None:
        """One that has left takes its folder along: another one may come."""
        self._looks_at = now + _LOOKS_SECONDS
        if self._folder.is_dir() or self._stamps is None:
            return
        awaited.steps, self.listens = self._stamps.steps, False
        self._leave(self._stamps)
        script.subscribe(awaited)

    def _look_for_models(self, step: int) -> None:
        """Where no loader is seen, learn in one step which models it calls."""
        if self._look is None:
            self._look = None if self.loops.seen else CalledModels()
            self._look_at = self._look_at if self._look else 0
            return
        found, self._look = self._look.end(), None
        self._look_at = 0 if found else next((at for at in _LOOKS_AT if at > step), 0)

    def _among_ranks(self, now: float) -> None:
        """What only ranks do that have others beside them, after a step."""
        assert self._stamps is not None
        if self.counted_before is None:  # groups have counted as many collectives on all ranks by the end of a step
            counted = sum(private.sequence_numbers().values())
            self._stamps.steps = round(counted / max(1, counted - self._groups_at))
            self.counted_before = 0
            self._learn_at += self._stamps.steps
        self._follow_gradients()
        if self._sample is not None and self._stamps.steps % EVERY <= 1:
            self._sample.end(now)
            if self._stamps.steps % EVERY == 0:
                self._sample.begin()
        if self._meeting is not None:
            self._meeting.step()
            if self._meeting.over:
                self._meeting = None

    def _answer(self) -> None:
        """There is a request: from now on paused, or not; or traced from a step on."""
        assert self._stamps is not None
        self._read_request(self._stamps)
        if self._rank in self._asked.lines:
            self._lines = ScriptLines(self._stamps, self._folder, self._rank)
        wanted = self._asked.trace
        if wanted is not None and (not wanted.ranks or self._rank in wanted.ranks):
            self._trace = StepTrace(wanted, self._rank, self._stamps.steps + 1)
            self._trace.start()
        if self._asked.paused or self._trace is not None:
            self._resting = self._stamps
            self._resting.let_go()
            if self._look is not None:
                self._look.end()
                self._look = None
            self._note_in(None)

    def _read_request(self, stamps: Stamps) -> None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            self._asked = WatchRequest.read(self._folder)
        self._asked = replace(self._asked, number=int(stamps.ring.live[2]))

    def _rest(self) -> None:
        """A step ended that is not stamped."""
        stamps = self._resting
        assert stamps is not None
        stamps.steps += 1
        if self._trace is not None:
            try:
                over = self._trace.step()
            except Exception as error:
                over = True
                print(f"stash: the trace of rank {self._rank} was not written ({error})", file=sys.stderr)
            if not over:
                return
            self._trace = None
        elif stamps.ring.live[2] != self._asked.number:
            self._read_request(stamps)
        if not self._asked.paused:
            self._resting = None
            self._note_in(stamps)
            if stamps.follows_device:
                stamps.follow_device()
            if self._last_ready:
                stamps.follow(self._last_ready)
            stamps.step_begins()

    def _follow_gradients(self) -> None:
        """Learn which gradients are the last of a step, and follow those."""
        stamps = self._stamps
        assert stamps is not None
        if self._order is not None:
            last = self._order.end()
            self._order = None
            if last:
                self._last_ready = last
                stamps.follow(last)
            self._learn_at = next((at for at in _LEARNS_AT if at > stamps.steps), stamps.steps + _LEARNS_EVERY)
        elif stamps.steps >= self._learn_at and self._counted is not None:
            stamps.let_go()
            self._order = GradientOrder(each for each in self._counted.parameters if each.requires_grad)

    def exits(self, last: bool) -> None:
        stamps = self._stamps or self._resting
        if stamps is not None:
            stamps.ring.live[1] = 1.0

    def abandoned(self) -> None:
        self.exits(last=True)

    def note(self, text: str) -> None:
        if self._stamps is not None:
            self._stamps.ring.note(text)


def _has_gradients() -> bool:
    return bool(sys.modules["torch"].is_grad_enabled())


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


def _place() -> tuple[int, int, int, int]:
    """(rank, ranks, local rank, node) by the process group, else by the launcher's variables."""
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        rank, ranks = int(dist.get_rank()), int(dist.get_world_size())
    else:
        rank, ranks = 0, 1
    local, here = _number("LOCAL_RANK", rank), _number("LOCAL_WORLD_SIZE", ranks)
    return rank, ranks, local, _number("GROUP_RANK", rank // max(1, here))


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
