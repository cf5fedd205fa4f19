"""Listens to a whole training run, step by step, and leaves its stamps in this rank's ring: the monitor's listener.

The script runs as if Stash were not there: no scope is switched, no batch replayed, no file kept; no thread, lock,
socket or synchronisation is added. What goes wrong in here is said once, in the ring and on standard error, and from
then on nothing is stamped. Who reads the ring is not known here.
"""

from __future__ import annotations

import os
import stat
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import current_process
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from stash.measure.agent import script
from stash.measure.agent.runner.loop_table import LoopOnTrial
from stash.measure.agent.runner.optimizers import Optimizers, SeenOptimizer
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.step_stages import WATCHED_STAGES
from stash.measure.agent.runner.watch_duties import (
    Collections,
    CopiesFollowed,
    Duty,
    GradientsFollowed,
    ModelSearch,
    Requests,
    ScriptLines,
    StepNumbering,
    StepSample,
    WatcherLookout,
    WatchersMeeting,
    has_recorder,
    write_recorders_when_asked,
)
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import steps
from stash.measure.agent.wraps.stages import BatchCopies
from stash.measure.protocol.orders import Orders, current_orders, load_orders
from stash.measure.protocol.stamped import LOADERS, StepRing
from stash.measure.protocol.watch_folder import attach_file

T = TypeVar("T")
_TRAINS_AFTER = 3
"""Batches that a backward pass each has followed."""


def start(optimizer_module: ModuleType) -> None:
    """Begin to listen to this process's script; called with ``torch.optim.optimizer`` once it was imported."""
    orders = current_orders()
    if orders is not None:
        _subscribe_listener(optimizer_module, partial(WatchedRun, orders))


def wait_for_watcher(optimizer_module: ModuleType) -> None:
    """Begin to listen once a watcher asks for it; called as ``start`` is."""
    _subscribe_listener(optimizer_module, AwaitedRun)


def _subscribe_listener(
    optimizer_module: ModuleType, listener: Callable[[], script.Listener]
) -> None:
    script.subscribe(listener())
    register_after_fork(optimizer_module, lambda _: _listen_in_fork(listener))
    steps.wrap_optimizer(optimizer_module)


def _listen_in_fork(listener: Callable[[], script.Listener]) -> None:
    """A process forked before any training may be the one that trains; a loader's workers are daemons and are not."""
    orders = current_orders()
    over = orders is not None and not orders.files.path.is_dir()
    if not (over or current_process().daemon or script.passes()):
        script.subscribe(listener())
        # what ``atexit`` is to a process that is no fork
        Finalize(None, script.exits, exitpriority=1)


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
            orders = load_orders(Path(_left_by_own_user(self._file)))
            if orders is not None:
                script.subscribe(WatchedRun(orders, self.steps, self))

    def listen_again(self, steps: int) -> None:
        """The watcher has left after so many steps."""
        self.steps = steps
        script.subscribe(self)


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


class _Wait(NamedTuple):
    """What is told of a wait for a batch."""

    begins: ThreadEvent
    ends: ThreadEvent
    fails: ThreadEvent
    """With any exception."""


_IN_STEP = _Wait(ThreadEvent.READ_BEGINS, ThreadEvent.READ_ENDED, ThreadEvent.READ_FAILED)
_OF_AN_EPOCH = _Wait(ThreadEvent.FIRST_ASKED, ThreadEvent.READ_ENDED, ThreadEvent.READ_ENDED)
_EVALUATED = _Wait(ThreadEvent.EVALUATION_ASKED, ThreadEvent.BATCH_GIVEN, ThreadEvent.LOOP_ENDED)
"""Its stage lasts from a loop's first batch to its end, forward passes included."""


class WatchedLoops(script.LoopListener):
    """The waits of one process for its loaders, each by its number and name.

    Loops without gradients are evaluation, and so are those of several batches that end without a backward pass; but
    not those of which a backward pass follows each batch.
    """

    def __init__(self) -> None:
        self.stamps: Stamps | None = None
        self._trial: LoopOnTrial | None = None
        self._evaluated_last = (0, 0, 0)
        """Without gradients: the latest source, backward passes then, and batches in a row that one pass followed."""
        self._trained_on: set[int] = set()
        """Sources that steps train on though they are read without gradients."""
        self._numbers: dict[int, int] = {}
        """By the identity of a source that is still there."""
        self._known: list[tuple[type[Any], Callable[[], Any]]] = []
        """Of each number: its source's class, and what gives the source, or ``None`` once that is gone."""

    def note_in(self, stamps: Stamps | None) -> None:
        """From now on waits are noted there; nowhere, if it is ``None``."""
        self.stamps = stamps

    def started(self, loader: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, the iterator that a loop asks ``loader`` for."""
        stamps = self.stamps
        if stamps is None or not stamps.is_this_thread:
            return take(*arguments)
        is_training = _has_gradients()
        if is_training:
            self._trial = LoopOnTrial(script.passes(), stamps.mark(), id(loader.dataset))
        stamps.tell(ThreadEvent.EPOCH_BEGINS if is_training else ThreadEvent.EVALUATION_BEGINS)
        try:
            return take(*arguments)
        finally:
            stamps.tell(ThreadEvent.ITERATOR_GIVEN)

    def waited(self, source: Any, take: Callable[..., T], *arguments: Any) -> T:
        """``take(*arguments)``, what the training thread waits for; ``source`` is what it comes from."""
        stamps = self.stamps
        if stamps is None:
            return take(*arguments)
        trial = (
            self._trial if self._trial is not None and self._trial.loader == id(source) else None
        )
        wait, number = _EVALUATED, 0
        if _has_gradients() or self._trains_on(id(source)):
            known = self._numbers.get(id(source))
            number = self._assign_number(source) if known is None else known
            wait = _IN_STEP if trial is None else self._go_on_with(trial)
        stamps.tell(wait.begins, number)
        try:
            batch = take(*arguments)
        except BaseException as error:
            stamps.tell(wait.fails)
            is_end = isinstance(error, StopIteration) and wait is _IN_STEP
            # without a backward pass the loop was an evaluation
            if is_end and trial is not None and self._trial is not None and trial.is_evaluation():
                self._trial = None
                stamps.tell(ThreadEvent.LOOP_WAS_EVALUATION, trial.mark)
            raise
        stamps.tell(wait.ends)
        return batch

    def _go_on_with(self, trial: LoopOnTrial) -> _Wait:
        """The loop takes another batch; the first one ends the start of its epoch."""
        is_first = not trial.batches
        self._trial = (
            trial.take_batch() if is_first or not trial.has_passed(script.passes()) else None
        )
        return _OF_AN_EPOCH if is_first else _IN_STEP

    def _trains_on(self, source: int) -> bool:
        """Whether steps train on what is read without gradients, as far as the batches before this one show."""
        before, passes, followed = self._evaluated_last
        now = script.passes()
        followed = followed + 1 if source == before and now == passes + 1 else 0
        self._evaluated_last = source, now, followed
        if followed >= _TRAINS_AFTER:
            self._trained_on.add(source)
        return source in self._trained_on

    @property
    def sees_loader(self) -> bool:
        """Whether there was any wait."""
        return bool(self._known)

    def _assign_number(self, source: Any) -> int:
        """A new one, or that of one of its class that is gone: scripts make their loaders again, in every epoch."""
        kind, key = type(source), id(source)
        gone = (
            number
            for number, (known, there) in enumerate(self._known)
            if known is kind and there() is None
        )
        number = self._numbers[key] = next(gone, len(self._known))
        there: Callable[[], Any] = (
            str  # a list, say, cannot be referred to weakly: it is there for good
        )
        with suppress(TypeError):
            there = weakref.ref(source, lambda _: self._numbers.pop(key, None))
        self._known[number : number + 1] = [(kind, there)]
        self.name_loaders()
        return number

    def name_loaders(self) -> None:
        if self.stamps is not None:
            names = (
                f"{kind.__name__}{f' {at + 1}' if at else ''}"
                for at, (kind, _) in enumerate(self._known)
            )
            self.stamps.ring.name_loaders(list(names)[:LOADERS])


class WatchedRun(script.Listener):
    """The one listener of a training process whose run is watched.

    ``counted_before``: steps that were taken before this object listened; ``None``: to be found, alike on all ranks.
    ``awaited`` listens again once the watcher has left.
    """

    def __init__(
        self, orders: Orders, counted_before: int | None = 0, awaited: AwaitedRun | None = None
    ) -> None:
        self.loops: WatchedLoops = WatchedLoops()
        self.listens = True
        self._folder = Path(orders.folder)
        self._counted_before, self._awaited = counted_before, awaited
        self._optimizers = Optimizers()
        self._counted: SeenOptimizer | None = None
        self._begun: BegunWatch | None = None
        """From the first step on."""

    @property
    def stamps(self) -> Stamps | None:
        """Where steps are noted; ``None`` while they are not."""
        return self.loops.stamps

    def note_in(self, stamps: Stamps | None) -> None:
        """From now on steps are noted there; nowhere, if it is ``None``."""
        self.loops.note_in(stamps)
        self.handle = super().handle if stamps is None else stamps.tell  # type: ignore[method-assign]

    def give_up(self, error: Exception) -> None:
        """Stamp nothing any more, and say why, once."""
        text = (
            f"stash: this rank is not watched any more ({type(error).__name__}: {str(error)[:200]})"
        )
        self.listens = False
        script.unsubscribe()
        if self._begun is not None:
            self._begun.stamps.ring.note(text)
            self._stop_stamping(self._begun)
        print(text, file=sys.stderr)

    def _stop_stamping(self, begun: BegunWatch) -> None:
        """Note nothing any more."""
        begun.rest()
        begun.collections.end()
        self.note_in(None)

    def stepped(self, optimizer: Any) -> None:
        now = perf_counter()
        try:
            own, begun = self._optimizers.note_step(optimizer), self._begun
            if begun is None:
                self._counted = own
                self._begin(optimizer)
                return
            stamps = begun.stamps
            rests = self.stamps is not stamps
            if own is not self._counted and not self._takes_over(own):
                if not rests and self._counted is not None:
                    beside = own.passes == self._counted.passes
                    stamps.tell(
                        ThreadEvent.UPDATED_BESIDE if beside else ThreadEvent.UPDATED_BEFORE
                    )
                return
            if rests:
                begun.requests.step_unstamped(stamps)
                if not begun.requests.is_paused:
                    self.note_in(stamps)
                    begun.go_on()
                return
            stamps.handle(ThreadEvent.STEP_ENDED, now)
            if begun.duties:
                begun.do_duties(now)
            if stamps.ring.live[2] != begun.requests.number:
                self._follow_request(begun)
        except Exception as error:
            self.give_up(error)

    def skipped(self, optimizer: Any) -> None:
        self.stepped(optimizer)

    def _takes_over(self, own: SeenOptimizer) -> bool:
        """Another optimizer than the counted one stepped: whether steps are counted at it from now on."""
        assert self._counted is not None
        successor = self._optimizers.find_successor(self._counted)
        if successor is None:
            return False
        self._counted = successor
        return successor is own

    def _begin(self, optimizer: Any) -> None:
        """At the first step: which rank this is, and on what it trains. What came before was setting up."""
        place = RankPlace.find()
        ring = StepRing(
            self._folder / f"ring.{place.rank}.{os.getpid()}",
            place.rank,
            place.ranks,
            place.local,
            place.node,
        )
        stamps = Stamps(perf_counter, ring, WATCHED_STAGES)
        parameters = (
            parameter for group in optimizer.param_groups for parameter in group["params"]
        )
        device = next((each.device for each in parameters if each.device.type != "cpu"), None)
        ring.name_device("cpu" if device is None else device.type)
        duties: list[Duty] = []
        if device is not None and device.type == "cuda":
            stamps.follow_device(device)
            duties.append(CopiesFollowed(BatchCopies.follow_process(device)))
        self.note_in(stamps)
        self.loops.name_loaders()
        stamps.count_from(self._counted_before or 0)
        duties.append(ModelSearch(stamps, lambda: self.loops.sees_loader))
        if place.ranks > 1:
            duties += self._duties_among_ranks(stamps, place)
        if self._awaited is not None:
            duties.append(WatcherLookout(self._folder, partial(self._stand_aside, self._awaited)))
        requests = Requests(self._folder, place.rank)
        self._begun = BegunWatch(stamps, requests, Collections(self), duties)

    def _duties_among_ranks(self, stamps: Stamps, place: RankPlace) -> Iterator[Duty]:
        """What only ranks do that have others beside them."""
        if self._counted_before is None:
            yield StepNumbering(stamps)
        yield GradientsFollowed(
            stamps, lambda: [] if self._counted is None else self._counted.parameters
        )
        yield StepSample(stamps)
        if has_recorder():
            write_recorders_when_asked(stamps, self._folder, place.rank)
        if place.local == 0 and place.ranks > place.ranks_of_node:
            yield WatchersMeeting(self._folder, place.node)

    def _stand_aside(self, awaited: AwaitedRun) -> None:
        """The watcher has left, and taken its folder along: another one may come."""
        assert self._begun is not None
        self.listens = False
        self._stop_stamping(self._begun)
        awaited.listen_again(self._begun.stamps.steps)

    def _follow_request(self, begun: BegunWatch) -> None:
        """There is a request: from now on paused, or not; or traced from a step on."""
        if begun.requests.read_request(begun.stamps):
            begun.duties.append(ScriptLines(begun.stamps, self._folder, begun.requests.rank))
        if begun.requests.is_paused:
            begun.rest()
            self.note_in(None)

    def exits(self, last: bool) -> None:
        if self._begun is not None:
            self._begun.stamps.ring.live[1] = 1.0

    def abandoned(self) -> None:
        self.exits(last=True)

    def note(self, text: str) -> None:
        if self.stamps is not None:
            self.stamps.ring.note(text)


@dataclass(frozen=True, slots=True)
class BegunWatch:
    """What a watched process has from its first step on."""

    stamps: Stamps
    requests: Requests
    collections: Collections
    duties: list[Duty]

    def do_duties(self, now: float) -> None:
        """A step ended ``now``."""
        for duty in [duty for duty in self.duties if duty.step(now)]:
            self.duties.remove(duty)

    def rest(self) -> None:
        """Nothing is stamped for a while, or any more."""
        self.stamps.let_go()
        for duty in self.duties:
            duty.rest()

    def go_on(self) -> None:
        """It is again, from the step on that begins now."""
        if self.stamps.follows_device:
            self.stamps.follow_device()
        for duty in self.duties:
            duty.go_on()
        self.stamps.tell(ThreadEvent.STEP_BEGINS)


def _has_gradients() -> bool:
    return bool(sys.modules["torch"].is_grad_enabled())


@dataclass(frozen=True)
class RankPlace:
    """Where this process stands in its job."""

    rank: int
    ranks: int
    local: int
    ranks_of_node: int
    node: int

    @classmethod
    def find(cls) -> RankPlace:
        """By the process group, else by the launcher's variables."""
        dist = sys.modules.get("torch.distributed")
        rank, ranks = 0, 1
        if dist is not None and dist.is_available() and dist.is_initialized():
            rank, ranks = int(dist.get_rank()), int(dist.get_world_size())
        here = _read_number("LOCAL_WORLD_SIZE", ranks)
        return cls(
            rank,
            ranks,
            _read_number("LOCAL_RANK", rank),
            here,
            _read_number("GROUP_RANK", rank // max(1, here)),
        )


def _read_number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
