"""This rank as its climb sees it: orders, clock, place, loaders, peak memory, and word to the others."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from stash.core.ladder import ScopeName
from stash.measure.agent.data import batches
from stash.measure.agent.data.feeds import Feed
from stash.measure.agent.runner.clock import Clock
from stash.measure.agent.runner.control import Place
from stash.measure.agent.runner.optimizers import Updating
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps import replicas
from stash.measure.agent.wraps.scope import scope
from stash.measure.linux.counters import peak_resident_bytes
from stash.measure.protocol.journal import Heart, Journal
from stash.measure.protocol.messages import MemorySeen, Message, Noted, Payload
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.wire import crosses

# Rank ------------------------------------------------------------------------------------------------------
# This rank as its climb sees it: its orders, clock and place, the loaders that train it, and word to the others.
#
# What discovery and blocks need of the process they run in; who drives them (``climber``) is not known here.

T = TypeVar("T")


class LoopEndedError(Exception):
    """A rank's training loop is over: every rank leaves the climb here."""


@crosses
@dataclass(frozen=True)
class LoopEnded:
    """A rank's report that its training loop is over."""


class Exchanging(Protocol):
    """What a rank needs of ``Control``."""

    place: Place

    def join(self) -> None:
        """The default process group was formed."""

    def exchange(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Hand in a report; the leader turns all of them into a decision every rank gets."""


class OwnRank:
    """The rank that this process is. Only the leader's words reach the journal."""

    def __init__(self, orders: Orders, clock: Clock, control: Exchanging, journal: Journal) -> None:
        self.orders, self.clock, self.control = orders, clock, control
        self.feeds: list[Feed] = []
        """Of the loaders that the training loop reads."""
        self.stamps = Stamps(clock.now)
        """Of the thread that trains, which the first step tells."""
        self.updating: Updating | None = None
        """The optimizer whose steps are the job's."""
        self.phase: int | None = None
        """How many numbers the job trains while it is measured."""
        self.steps_counted = 0
        """Steps under scope world since collectives are counted."""
        self.switches = not orders.isolated
        """Whether the scope of exchange changes between rungs."""
        self.inseparable: str | None = None
        """Why a rank by itself does not do what it does in the whole job, if it does not."""
        self.drifted = False
        """Replicas have trained apart, or on replayed batches: their weights are nobody's model."""
        self._journal = journal
        self._heart = Heart(orders.files)
        self._notes: list[str] = []

    @property
    def place(self) -> Place:
        return self.control.place

    @property
    def leads(self) -> bool:
        return self.place.rank == 0

    @property
    def optimizer(self) -> Any:
        """The one whose steps are the job's; ``None`` before the first step, and once the script has dropped it."""
        return None if self.updating is None else self.updating.optimizer

    @property
    def device(self) -> Any:
        return self.clock.device

    def delay(self) -> float:
        """Run-queue delay so far of the thread that trains, in seconds."""
        return self.stamps.delay()

    def agree(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Exchange reports; raises LoopEndedError on every rank if any rank's loop is over."""

        def judge(reports: list[Any]) -> T | LoopEnded:
            return LoopEnded() if any(isinstance(r, LoopEnded) for r in reports) else decide(reports)

        decision = self.control.exchange(report, judge)
        if isinstance(decision, LoopEnded):
            raise LoopEndedError
        return decision

    def claim(self) -> bool:
        """Whether the launch is measured in this job: not if processes that it does not know of came first."""
        measured = self.agree(None, lambda reports: self._journal.claim())
        if not measured:
            self.orders.files.beside().touch()
        return measured

    def tell(self, *messages: Message | Payload) -> None:
        """Let the launcher know, if this rank leads."""
        if self.leads:
            self._journal.write(*messages)

    def note(self, text: str) -> None:
        """Say something in the profile, once."""
        if text not in self._notes:
            self._notes.append(text)
            self.tell(Noted(text))

    def beat(self, steps: int) -> None:
        """Let this node's launcher see that this rank is alive, and how far it got."""
        self._heart.beat(self.control.place.rank, steps)

    def set_scope(self, name: ScopeName) -> None:
        """Switch the exchange; from the first scope below world on, replicas drift apart."""
        if name == "node" and self.place.nodes == 1:
            name = "world"  # the node is all there is: train exactly as the job does
        replicas.set_scope(name)

    def counts_step(self) -> None:
        """A step of the job ended."""
        self.steps_counted += scope.name == "world"

    def reset_counts(self) -> None:
        """Begin to count the script's own collectives, and the steps in which they are issued."""
        scope.reset_counts()
        self.steps_counted = 0

    def collectives_per_step(self) -> dict[str, float]:
        """By name; empty before the first counted step."""
        return self._per_step(scope.issued)

    def collective_bytes_per_step(self) -> dict[str, float]:
        """What this rank handed to them, by name."""
        return self._per_step(scope.sent)

    def _per_step(self, counted: Mapping[str, int]) -> dict[str, float]:
        steps = self.steps_counted
        return {name: round(n / steps, 3) for name, n in counted.items()} if steps else {}


# Memory ----------------------------------------------------------------------------------------------------
# How much memory a rank holds at most while blocks are measured: of its accelerator, and of the host.
#
# An accelerator's peaks are those of blocks whose batches come from the host, as the job's own do; they start again
# with every block. The host's is the kernel's, of the training process since it began: it cannot start again.

_WORTH_TELLING = 1.01
"""By how much a peak must exceed the last one told."""


class MemoryWatch:
    """The peaks of one rank, told as they grow."""

    def __init__(self, rank: OwnRank) -> None:
        self._rank = rank
        self._told: MemorySeen | None = None
        self._handed_in: MemorySeen | None = None

    def begin(self) -> None:
        """Before the timed steps of a block."""
        self._of_device("reset_peak_memory_stats")

    def end(self) -> MemorySeen | None:
        """After them; None if nothing grew beyond what was ``written_down``."""
        seen = MemorySeen(
            rank=self._rank.place.rank,
            allocated_bytes=self._of_device("max_memory_allocated"),
            reserved_bytes=self._of_device("max_memory_reserved"),
            resident_bytes=peak_resident_bytes(),
            replayed_bytes=sum(batches.size(kept) for feed in self._rank.feeds for kept in feed.ring.kept),
        )
        self._handed_in = seen if _grew(self._told, seen) else None
        return self._handed_in

    def written_down(self) -> None:
        """The block counts, and with it what was told beside it."""
        self._told = self._handed_in or self._told

    def _of_device(self, function: str) -> int | None:
        """What PyTorch's allocator of this rank's device answers; None where there is none that counts."""
        if self._rank.device.type != "cuda":
            return None
        try:
            answer: int | None = getattr(sys.modules["torch"].cuda, function)(self._rank.device)
        except RuntimeError:  # of an allocator of the user's own
            return None
        return answer


def _grew(before: MemorySeen | None, now: MemorySeen) -> bool:
    if before is None:
        return True
    first, last = dataclasses.astuple(before)[1:], dataclasses.astuple(now)[1:]
    return any(b is not None and b > _WORTH_TELLING * (a or 0) for a, b in zip(first, last, strict=True))
