"""This rank as the ladder sees it: its orders, clock, place and loaders, and word to the others.

What discovery and blocks need of the process that they run in; who drives them is not known here. Only what the
leader publishes reaches the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import get_ident
from typing import Any, NamedTuple, TypeVar

from stash.core.ladder import ScopeName
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.runner.control import Control, Place
from stash.measure.agent.runner.ledger_keeper import (
    NO_LEDGER,
    Hearer,
    LedgerKeeper,
    NoLedger,
    SavingClock,
)
from stash.measure.agent.runner.optimizers import SeenOptimizer
from stash.measure.agent.runner.stamps import Clock, Stamps
from stash.measure.agent.runner.step_stages import HEEDED
from stash.measure.agent.runner.tiny_values import TinyValues
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import replicas
from stash.measure.protocol.journal import Heart, Journal
from stash.measure.protocol.messages import Message, Noted, Payload
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.wire import register_record

T = TypeVar("T")


class LoopEndedError(Exception):
    """A rank's training loop is over: every rank stops measuring here."""


@register_record
@dataclass(frozen=True)
class LoopEnded:
    """A rank's report that its training loop is over."""


@dataclass(frozen=True)
class JobKnown:
    """What has been found out of a rank's part in its job."""

    switches: bool
    """Whether the scope of exchange changes between rungs."""
    inseparable: str | None = None
    """Why a rank by itself does not do what it does in the whole job, if it does not."""
    phase: int | None = None
    """How many numbers the job trains while it is measured."""
    drifted: bool = False
    """Replicas have trained apart, or on replayed batches: their weights are no model."""
    tiny_values: TinyValues | None = None
    """Of the model, since they are flushed to zero by Stash and not by the script."""


class BareSteps(NamedTuple):
    """Steps in which the script is left alone."""

    left: int = 0
    """So many from now on."""
    moments: tuple[tuple[float, float], ...] = ()
    """Of the begin and of each that ended: when, and the training thread's delay by then."""


class OwnRank:
    """The rank that this process is."""

    def __init__(self, orders: Orders, clock: Clock, control: Control, journal: Journal) -> None:
        self.orders, self.clock, self.control = orders, clock, control
        self.feeds: list[Feed] = []
        """Of the loaders that the training loop reads."""
        self.stamps = Stamps(clock.now)
        """Of the thread that trains, which takes the first step."""
        keeper = LedgerKeeper(self.stamps, orders.budget)
        self.ledger: NoLedger = keeper
        """Of the same thread, until blocks begin."""
        self.counted_optimizer: SeenOptimizer | None = None
        """The optimizer whose steps are the job's."""
        self.known = JobKnown(switches=True)
        self.own_seconds = 0.0
        """What telling of events and handing out batches took of the training thread since its step began."""
        self.bare = BareSteps()
        """Once steps were left alone, they stay so."""
        self._now = clock.now
        self._hearers: list[tuple[Hearer, ...]] = [
            (self.stamps.handle,) * HEEDED[event] + keeper.list_hearers(event)
            for event in (ThreadEvent(1), *ThreadEvent)
        ]
        """Who is told of an event, by its number: no call is made for one that nobody wants."""
        self._journal = journal
        self._heart = Heart(orders.files)
        self._notes: list[str] = []

    @property
    def place(self) -> Place:
        return self.control.place

    @property
    def may_evaluate(self) -> bool:
        """Whether an evaluation takes as long as the script has it take."""
        return self.orders.whole_side_work or self.ledger.may_evaluate

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    @property
    def optimizer(self) -> Any:
        """The one whose steps are the job's; ``None`` before the first step, and once the script has dropped it."""
        return None if self.counted_optimizer is None else self.counted_optimizer.optimizer()

    @property
    def device(self) -> Any:
        return self.clock.device

    def agree(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Exchange reports; raises LoopEndedError on every rank if any rank's loop is over."""

        def judge(reports: list[Any]) -> T | LoopEnded:
            return (
                LoopEnded() if any(isinstance(r, LoopEnded) for r in reports) else decide(reports)
            )

        decision = self.control.exchange(report, judge)
        if isinstance(decision, LoopEnded):
            raise LoopEndedError
        return decision

    def claim(self) -> bool:
        """Whether the launch is measured in this job: not if processes that it does not know of came first."""
        measured = self.agree(None, lambda reports: self._journal.claim())
        if not (measured or self.control.stands_apart):
            self.orders.files.mark("extra")
        return measured

    def publish(self, *messages: Message | Payload) -> None:
        """Write to the journal, for the launcher, if this rank leads."""
        if self.leads:
            self._journal.write(*messages)

    def note(self, text: str) -> None:
        """Say something in the profile, once."""
        if text not in self._notes:
            self._notes.append(text)
            self.publish(Noted(text))

    def beat(self) -> None:
        """Let this node's launcher see that this rank is alive, and how far it got."""
        self._heart.beat(self.control.place.rank, self.stamps.steps)

    def tell(self, event: ThreadEvent, about: Any = None) -> None:
        """Something happened on the calling thread: of that which trains, stamps and ledger are told."""
        hearers = self._hearers[event]
        if hearers and get_ident() == self.stamps.followed.number:
            now = self._now()
            for hearer in hearers:
                hearer(event, now, about)
            self.ledger.discount(self._now() - now)

    def tell_at(self, event: ThreadEvent, now: float, about: Any = None) -> None:
        """The same of the thread that trains, and of what happened there ``now``."""
        for hearer in self._hearers[event]:
            hearer(event, now, about)

    def handle(self, event: ThreadEvent, about: Any = None) -> None:
        """The same of what the script itself calls, which Stash's telling makes no longer."""
        if self._hearers[event] and get_ident() == self.stamps.followed.number:
            since = self._now()
            for hearer in self._hearers[event]:
                hearer(event, since, about)
            took = self._now() - since
            self.own_seconds += took
            self.ledger.discount(took)

    def work_since(self, moment: float) -> None:
        """Up to now the training thread worked for Stash."""
        took = self._now() - moment
        self.own_seconds += took
        self.ledger.discount(took)

    def give_batch(self, asked: float, took: float, about: Any) -> None:
        """A batch that was ``asked`` for comes now; all but the seconds that it ``took`` was Stash's own work."""
        given = self._now()
        self.ledger.discount(given - asked - took)
        self.tell_at(ThreadEvent.BATCH_GIVEN, given, about)
        now = self._now()
        self.ledger.discount(now - given)
        self.own_seconds += now - asked - took

    def begin_step(self) -> None:
        """Stash has done nothing yet in the step that begins."""
        self.own_seconds = 0.0

    def stop_ledger(self, times_saves: bool = False) -> None:
        """Keep account of the training thread's seconds no more, but of saves if it ``times_saves``."""
        self.ledger.stop()
        self.ledger = NO_LEDGER
        self._hearers[:] = [hearers[: HEEDED[event]] for event, hearers in enumerate(self._hearers)]
        if times_saves:
            self.ledger = clock = SavingClock()
            for event in (ThreadEvent.SAVE_BEGINS, ThreadEvent.SAVE_ENDED):
                self._hearers[event] += (clock.handle,)

    def learn(self, **changes: Any) -> None:
        """Something was found out: fields of ``JobKnown``."""
        self.known = replace(self.known, **changes)

    def count_at(self, optimizer: SeenOptimizer) -> None:
        """Its steps are the job's from now on."""
        self.counted_optimizer = optimizer

    def train_from(self, feeds: list[Feed]) -> None:
        """These are of the loaders that the training loop reads."""
        self.feeds.extend(feeds)

    def leave_alone(self, steps: int, now: float) -> None:
        """So many steps from ``now`` on the script is left alone."""
        self.bare = BareSteps(steps, ((now, self.stamps.delay_at(now)),))

    def set_scope(self, name: ScopeName) -> None:
        """Switch the exchange; from the first scope below world on, replicas drift apart."""
        if name == "node" and self.place.nodes == 1:
            name = "world"  # the node is all there is: train exactly as the job does
        replicas.set_scope(name)

    def bare_step_ended(self) -> bool:
        """Note a bare step; whether more of them follow."""
        ended, (left, moments) = self.clock.ended, self.bare
        self.bare = BareSteps(left - 1, (*moments, (ended, self.stamps.delay_at(ended))))
        return left > 1
