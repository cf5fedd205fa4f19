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
from functools import partial
from multiprocessing import current_process
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from stash.measure.agent import script
from stash.measure.agent.runner.loop_table import LoopOnTrial
from stash.measure.agent.runner.optimizers import Optimizers, SeenOptimizer
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.runner.step_stages import WATCHED_STAGES
from stash.measure.agent.runner.traced_steps import trace_steps
from stash.measure.agent.runner.watch_duties import (
    Duties,
    bring_watchers_together,
    follow_copies,
    follow_gradients,
    has_recorder,
    look_for_models,
    look_out_for_watcher,
    number_steps,
    sample_collectives,
    tell_lines,
    tell_of_collections,
    write_recorders_when_asked,
)
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import steps
from stash.measure.agent.wraps.stages import BatchCopies
from stash.measure.protocol.orders import Orders, WatchRequest, current_orders, load_orders
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


_Wait: TypeAlias = tuple[ThreadEvent, ThreadEvent, ThreadEvent]
"""What is told of a wait for a batch: as it begins, as it ends, and as it fails, with any exception."""
_IN_STEP: _Wait = (ThreadEvent.READ_BEGINS, ThreadEvent.READ_ENDED, ThreadEvent.READ_FAILED)
_OF_AN_EPOCH: _Wait = (ThreadEvent.FIRST_ASKED, ThreadEvent.READ_ENDED, ThreadEvent.READ_ENDED)
_EVALUATED: _Wait = (
    ThreadEvent.EVALUATION_ASKED,
    ThreadEvent.BATCH_GIVEN,
    ThreadEvent.LOOP_ENDED,
)
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
        stamps = self.stamps
        if stamps is None or not stamps.is_this_thread:
            return take(*arguments)
        event = ThreadEvent.EVALUATION_BEGINS
        if _has_gradients():
            self._trial = LoopOnTrial(script.passes(), stamps.mark(), id(loader.dataset))
            event = ThreadEvent.EPOCH_BEGINS
        stamps.tell(event)
        try:
            return take(*arguments)
        finally:
            stamps.tell(ThreadEvent.ITERATOR_GIVEN)

    def waited(self, source: Any, take: Callable[..., T], *arguments: Any) -> T:
        stamps, trial = self.stamps, self._trial
        if stamps is None:
            return take(*arguments)
        if trial is not None and trial.loader != id(source):
            trial = None
        wait, number = _EVALUATED, 0
        if _has_gradients() or self._trains_on(id(source)):
            known = self._numbers.get(id(source))
            number = self._assign_number(source) if known is None else known
            wait = _IN_STEP
            if trial is not None:  # the loop's first batch ends the start of its epoch
                is_first = not trial.batches
                wait = _OF_AN_EPOCH if is_first else _IN_STEP
                goes_on = is_first or not trial.has_passed(script.passes())
                self._trial = trial.take_batch() if goes_on else None
        begins, ends, fails = wait
        stamps.tell(begins, number)
        try:
            batch = take(*arguments)
        except BaseException as error:
            stamps.tell(fails)
            is_end = isinstance(error, StopIteration) and wait is _IN_STEP
            # without a backward pass the loop was an evaluation
            if is_end and trial is not None and self._trial is not None and trial.is_evaluation():
                self._trial = None
                stamps.tell(ThreadEvent.LOOP_WAS_EVALUATION, trial.mark)
            raise
        stamps.tell(ends)
        return batch

    def _trains_on(self, source: int) -> bool:
        """Whether steps train on what is read without gradients, as far as the batches before this one show."""
        before, passes, followed = self._evaluated_last
        now = script.passes()
        followed = followed + 1 if source == before and now == passes + 1 else 0
        self._evaluated_last = source, now, followed
        if followed >= _TRAINS_AFTER:
            self._trained_on.add(source)
        return source in self._trained_on

    def sees_loader(self) -> bool:
        """Whether there was any wait."""
        return bool(self._known)

    def _assign_number(self, source: Any) -> int:
        """A new one, or that of one of its class that is gone: scripts make their loaders again, in every epoch."""
        kind, key = type(source), id(source)
        numbered = enumerate(self._known)
        gone = (number for number, (of, there) in numbered if of is kind and there() is None)
        number = self._numbers[key] = next(gone, len(self._known))
        # a list, say, cannot be referred to weakly: it is there for good
        there: Callable[[], Any] = str
        with suppress(TypeError):
            there = weakref.ref(source, lambda _: self._numbers.pop(key, None))
        self._known[number : number + 1] = [(kind, there)]
        self.name_loaders()
        return number

    def name_loaders(self) -> None:
        if self.stamps is not None:
            known = enumerate(self._known[:LOADERS], 1)
            names = [f"{of.__name__} {at}" if at > 1 else of.__name__ for at, (of, _) in known]
            self.stamps.ring.name_loaders(names)


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
        self.duties = Duties()
        self._folder = Path(orders.folder)
        self._counted_before, self._awaited = counted_before, awaited
        self._optimizers = Optimizers()
        self._counted: SeenOptimizer | None = None
        self._begun: BegunWatch | None = None
        """From the first step on."""

    def note_in(self, stamps: Stamps | None) -> None:
        """From now on steps are noted there; nowhere, if it is ``None``."""
        self.loops.note_in(stamps)
        self.handle = super().handle if stamps is None else stamps.tell  # type: ignore[method-assign]

    def give_up(self, error: Exception) -> None:
        """Stamp nothing any more, and say why, once."""
        text = (
            f"stash: this rank is not watched any more ({type(error).__name__}: {str(error)[:200]})"
        )
        script.unsubscribe()
        if self._begun is not None:
            self._begun.stamps.ring.note(text)
        self._stop_stamping()
        print(text, file=sys.stderr)

    def _stop_stamping(self) -> None:
        """Note nothing any more."""
        self.listens = False
        if self._begun is not None:
            self._rest(self._begun.stamps)
            self._begun.end_collections()

    def _rest(self, stamps: Stamps) -> None:
        """Nothing is stamped for a while."""
        stamps.let_go()
        self.duties.rest()
        self.note_in(None)

    def stepped(self, optimizer: Any) -> None:
        now = perf_counter()
        try:
            own, begun = self._optimizers.note_step(optimizer), self._begun
            counted = self._counted
            if begun is None or counted is None:
                self._counted = own
                self._begin(optimizer)
            elif own is counted or self._takes_over(own, counted):
                self._end_step(begun, now)
            elif self.loops.stamps is not None:
                beside = own.passes == counted.passes
                begun.stamps.tell(
                    ThreadEvent.UPDATED_BESIDE if beside else ThreadEvent.UPDATED_BEFORE
                )
        except Exception as error:
            self.give_up(error)

    def skipped(self, optimizer: Any) -> None:
        self.stepped(optimizer)

    def _takes_over(self, own: SeenOptimizer, counted: SeenOptimizer) -> bool:
        """Another optimizer than the counted one stepped: whether steps are counted at it from now on."""
        successor = self._optimizers.find_successor(counted)
        self._counted = successor or counted
        return successor is own

    def _end_step(self, begun: BegunWatch, now: float) -> None:
        stamps, requests = begun.stamps, begun.requests
        if self.loops.stamps is None:
            stamps.count_from(stamps.steps + 1)
            requests.end_unstamped_step(stamps)
            if not requests.is_paused:
                self.note_in(stamps)
                if stamps.follows_device:
                    stamps.follow_device()
                self.duties.go_on()
                stamps.tell(ThreadEvent.STEP_BEGINS)
            return
        stamps.handle(ThreadEvent.STEP_ENDED, now)
        self.duties.end_step()
        if stamps.ring.live[2] != requests.number:
            if requests.read(stamps):
                self.duties.add(partial(tell_lines, stamps, self._folder, requests.rank))
            if requests.is_paused:
                self._rest(stamps)

    def _begin(self, optimizer: Any) -> None:
        """At the first step: which rank this is, and on what it trains. What came before was setting up."""
        place, add = RankPlace.find(), self.duties.add
        ring_file = self._folder / f"ring.{place.rank}.{os.getpid()}"
        ring = StepRing(ring_file, place.rank, place.ranks, place.local, place.node)
        stamps = Stamps(perf_counter, ring, WATCHED_STAGES)
        devices = (each.device for group in optimizer.param_groups for each in group["params"])
        device = next((each for each in devices if each.type != "cpu"), None)
        ring.name_device("cpu" if device is None else device.type)
        self.note_in(stamps)
        self.loops.name_loaders()
        stamps.count_from(self._counted_before or 0)
        if device is not None and device.type == "cuda":
            stamps.follow_device(device)
            add(partial(follow_copies, BatchCopies.follow_process(device)))
        add(partial(look_for_models, stamps, self.loops.sees_loader))
        if place.ranks > 1:
            self._begin_among_ranks(stamps, place)
        if self._awaited is not None:
            leave = partial(self._stand_aside, stamps, self._awaited)
            add(partial(look_out_for_watcher, self._folder, leave))
        requests = Requests(self._folder, place.rank)
        self._begun = BegunWatch(stamps, requests, tell_of_collections(self))

    def _begin_among_ranks(self, stamps: Stamps, place: RankPlace) -> None:
        """What only ranks do that have others beside them."""
        add = self.duties.add
        if self._counted_before is None:
            add(partial(number_steps, stamps))
        add(partial(follow_gradients, stamps, self._list_parameters))
        add(partial(sample_collectives, stamps))
        if has_recorder():
            write_recorders_when_asked(stamps, self._folder, place.rank)
        if place.local == 0 and place.ranks > place.ranks_of_node:
            add(partial(bring_watchers_together, self._folder, place.node))

    def _list_parameters(self) -> list[Any]:
        return [] if self._counted is None else self._counted.parameters

    def _stand_aside(self, stamps: Stamps, awaited: AwaitedRun) -> None:
        """The watcher has left, and taken its folder along: another one may come."""
        self._stop_stamping()
        awaited.listen_again(stamps.steps)

    def exits(self, last: bool) -> None:
        if self._begun is not None:
            self._begun.stamps.ring.live[1] = 1.0

    def abandoned(self) -> None:
        self.exits(last=True)

    def note(self, text: str) -> None:
        if self.loops.stamps is not None:
            self.loops.stamps.ring.note(text)


class BegunWatch(NamedTuple):
    """What a watched process has from its first step on."""

    stamps: Stamps
    requests: Requests
    end_collections: Callable[[], None]


class Requests:
    """What the watcher asks of this ``rank``: to be paused, or traced, or told of its lines.

    A rank finds a request by one comparison a step. While it is paused or traced it leaves no rows, so that no window
    has those steps.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.rank = rank
        self._folder = folder
        self.number = 0
        """Of the latest one that was answered."""
        self._request = WatchRequest(0)
        self._trace: Iterator[None] | None = None
        """What is left of it."""

    @property
    def is_paused(self) -> bool:
        """Whether nothing is to be stamped."""
        return self._request.paused or self._trace is not None

    def read(self, stamps: Stamps) -> bool:
        """Read a new request; whether it asks for lines."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            self._request = WatchRequest.load(self._folder)
        self.number = int(stamps.ring.live[2])
        wanted = self._request.trace
        if wanted is not None and self.rank in (wanted.ranks or (self.rank,)):
            name = f"rank{self.rank}.step{stamps.steps + 1}.json.gz"
            self._trace = trace_steps(Path(wanted.folder) / name, wanted.steps)
            self._go_on_tracing()
        return self.rank in self._request.lines

    def _go_on_tracing(self) -> None:
        assert self._trace is not None
        try:
            if next(self._trace, self) is self:
                self._trace = None
        except Exception as error:
            self._trace = None
            text = f"stash: the trace of rank {self.rank} was not written ({error})"
            print(text, file=sys.stderr)

    def end_unstamped_step(self, stamps: Stamps) -> None:
        """A step ended that is not stamped."""
        if self._trace is not None:
            self._go_on_tracing()
        elif stamps.ring.live[2] != self.number:
            self.read(stamps)


def _has_gradients() -> bool:
    return bool(sys.modules["torch"].is_grad_enabled())


class RankPlace(NamedTuple):
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
        local = _read_number("LOCAL_RANK", rank)
        return cls(rank, ranks, local, here, _read_number("GROUP_RANK", rank // max(1, here)))


def _read_number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise
