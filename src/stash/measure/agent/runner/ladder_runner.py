"""The climber: runs the ladder's blocks inside the training loop, one optimizer step at a time.

It listens to the script. Its work is written as one generator, ``_climb``; every ``yield`` hands control back to the
script until its next step. Ranks that sit a block out wait in ``Control.exchange``, inside that step.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Generator
from enum import Enum, auto
from multiprocessing import current_process
from multiprocessing.util import Finalize, register_after_fork
from types import ModuleType
from typing import Any, Protocol

from stash.core.ladder import round_of_visits
from stash.measure.agent import script
from stash.measure.agent.runner import discovery, timing
from stash.measure.agent.runner.blocks import BlockRunner
from stash.measure.agent.runner.clock import Clock
from stash.measure.agent.runner.control import Control, Shutdown
from stash.measure.agent.runner.loops import PATIENCE, Loops
from stash.measure.agent.runner.optimizers import Optimizers, Updating
from stash.measure.agent.runner.rank import LoopEnded, LoopEndedError, OwnRank
from stash.measure.agent.runner.stamps import Stamps
from stash.measure.agent.wraps import opened_files, steps
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol.journal import Journal
from stash.measure.protocol.messages import ClimbEnded, PhaseBegun, RoundDone
from stash.measure.protocol.orders import Orders, current

_WARM_UP_STEPS = (3, 20)
_STEADY = 0.1
_SHARE = 0.15
"""Of the budget, beside which warming up may take little; a run of such long steps has two of them."""
_FEWEST_LONG_STEPS = 2
_PARTING = 1.5 * PATIENCE


def start(optimizer_module: ModuleType) -> None:
    """Begin to listen to this process's script; called with ``torch.optim.optimizer`` once it was imported."""
    orders = current()
    if orders is None:
        return
    _listen(orders)
    atexit.register(script.exits)
    steps.wrap_optimizer(optimizer_module)


def _as_started() -> tuple[int, int]:
    """This process among the ranks that a launcher started; a number alone is left from somewhere else."""
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    told = "MASTER_ADDR" in os.environ and rank.isdecimal() and size.isdecimal()
    return (int(rank), int(size)) if told else (0, 1)


def _listen(orders: Orders) -> None:
    climber = LadderRunner(
        OwnRank(orders, Clock(), Control(orders.files, supervised=not orders.may_isolate), Journal(orders.files))
    )
    script.subscribe(climber)
    register_after_fork(climber, _listen_in_fork)


def _listen_in_fork(inherited: LadderRunner) -> None:
    """A process forked before any training may be the one that trains; a loader's workers are daemons and are not."""
    if not current_process().daemon and inherited.rank.updating is None:
        _listen(inherited.rank.orders)
        Finalize(None, script.exits, exitpriority=1)  # what ``atexit`` is to a process that is no fork


class State(Enum):
    """How far the climb is."""

    CLIMBING = auto()
    ENDING = auto()
    """The training loop is over, and the ranks are told so."""
    FINISHED = auto()
    """Nothing is measured any more."""


class Way(Protocol):
    """What is used of a ``Shutdown``."""

    def here(self) -> None: ...
    def at_exit(self) -> None: ...


class LadderRunner:
    """The one climber of a training process. ``parting`` never returns; tests put something milder in its place."""

    def __init__(self, rank: OwnRank, parting: Way | None = None) -> None:
        self.rank = rank
        self.state = State.CLIMBING
        self.listens = True
        self._parting = parting or Shutdown(rank.orders.files)
        self._exits = False
        """The script comes to an end by itself."""
        self._goodbye: threading.Thread | None = None
        """Says that the loop is over, to ranks that may not come to hear it."""
        self._once = threading.Lock()
        loops = self._loops = Loops(rank, over=self.loop_ended)
        self.opened, self.enough, self.served, self.closed = loops.opened, loops.enough, loops.served, loops.closed
        self.acted = loops.acted  # what loops do is theirs to hear, without a step in between
        self._optimizers = Optimizers()
        self._routine: Generator[None, None, None] | None = None

    # What the script does -----------------------------------------------------------------------------

    @property
    def drifted(self) -> bool:
        return self.rank.drifted

    def world_formed(self) -> None:
        """The default process group was formed."""
        self.rank.control.join()

    def stepped(self, optimizer: Any) -> None:
        """An optimizer stepped; one optimizer's steps are the job's, or those of the one that takes its place."""
        rank = self.rank
        rank.clock.step_ends()
        own = self._optimizers.stepped(optimizer)
        if rank.updating is None:
            self._begin(own, optimizer)
        if own is not rank.updating and (self.state is not State.CLIMBING or not self._succeeds()):
            return
        if self._routine is None or self.state is not State.CLIMBING:
            return
        rank.stamps.step_ends()
        self._optimizers.counts()
        rank.beat(self._optimizers.counted)
        rank.counts_step()
        self._loops.stepped()
        try:
            next(self._routine)
            self._loops.step_begins()
            rank.stamps.step_begins()
        except StopIteration:
            self._leave()
        except LoopEndedError:
            self.state = State.ENDING
            self._leave()

    def backward_ended(self) -> None:
        """A backward pass is over, its exchange included."""
        if self._routine is not None:
            self.rank.stamps.backward_ended()

    def beat(self) -> None:
        """A sign of life, with the steps so far."""
        self.rank.beat(self._optimizers.counted)

    def note(self, text: str) -> None:
        """Say something in the profile, once."""
        self.rank.note(text)

    def saved(self) -> None:
        """The script is about to save."""
        self._loops.acted(saved=True)

    def abandoned(self) -> None:
        """The script is dying of an exception: stand out of its way."""
        self._measure_nothing()

    def exits(self, last: bool) -> None:
        """The script's process ends by itself: with the others, and not before the launcher knows."""
        self._exits = True
        self.loop_ended()
        if self._goodbye is not None:
            self._goodbye.join(_PARTING)
        if last and self._goodbye is not None:  # the others may not have come to say theirs
            self._parting.at_exit()

    def loop_ended(self) -> None:
        """The script's training loop is over before the schedule is: end together, keep what there is."""
        with self._once:
            if self.state is not State.CLIMBING or self.rank.updating is None:
                return
            self.state = State.ENDING
        # Ranks end their loops together or not at all; one that ends alone must not wait for ever.
        self._goodbye = threading.Thread(target=self._say_goodbye, daemon=True)
        self._goodbye.start()
        self._goodbye.join(_PARTING)

    def _say_goodbye(self) -> None:
        try:
            self.rank.agree(LoopEnded(), lambda reports: None)
        except LoopEndedError:
            self._leave()
        except RuntimeError:
            pass  # another rank died first; its own error tells why

    # The climb ----------------------------------------------------------------------------------------

    def _begin(self, first: Updating, optimizer: Any) -> None:
        import torch

        rank = self.rank
        rank.updating = first
        rank.stamps = Stamps(rank.clock.now)
        scope.forget()  # what came before the first step was setting up
        rank.reset_counts()
        rank.clock.watch(p.device for group in optimizer.param_groups for p in group["params"])
        if rank.device.type == "cpu":
            torch.set_flush_denormal(True)
        number, started = _as_started()
        if rank.place.world_size == 1 < started and not self._goes_on_alone(number):
            return
        if rank.claim():
            self._routine = self._climb()
        else:
            self._measure_nothing()  # a trainer of its own, one of several: it trains on as it would alone

    def _goes_on_alone(self, number: int) -> bool:
        """Whether this copy of a script goes on, that was started as several ranks and formed no process group.

        Where the launcher can start it again, none does; else the first, as one process.
        """
        if number == 0 and not self.rank.orders.may_isolate:
            self.note("the script trains on one device: it never called init_process_group")
            return True
        if number == 0 and self.rank.claim():
            self.rank.tell(ClimbEnded("no process group"))
            self.beat()
        self._measure_nothing()
        self._parting.here()
        return False

    def _climb(self) -> Generator[None, None, None]:
        rank = self.rank
        step = yield from self._warm_up()
        if self._choose_optimizer():
            yield  # the interval under way began at another optimizer's step
            yield
        rank.feeds = self._loops.training()
        rank.phase = self._optimizers.trained()
        yield from discovery.follow_last_gradient(rank)
        first = yield from timing.untouched(rank, self._loops, step)
        ladder = discovery.choose_rungs(rank, step)
        if first is not None:
            rank.agree(first, lambda blocks: rank.tell(*blocks))
        rungs = ladder.rungs
        unsafe = yield from discovery.try_switching(rank, ladder.looks)
        if unsafe and rank.orders.may_isolate and rank.place.nodes == 1 and rank.inseparable is None:
            self._finish("unsafe", unsafe)
            return
        if unsafe:
            rungs = discovery.without_switching(rank, rungs, unsafe)
        elif "node" in rungs and rank.place.nodes > 1 and rank.switches:
            rungs = yield from discovery.try_node(rank, rungs)
        if not rungs:
            self._finish("no rungs")
            return
        blocks = BlockRunner(rank, self._loops, step)
        blocks.start(rungs)
        number, last = rank.orders.first_round, rank.orders.rounds
        while last is None or number < rank.orders.first_round + last:
            for visit in round_of_visits(rungs, number, rank.place.world_size):
                outcome = yield from blocks.visit(visit, number)
                if outcome.stop:
                    self._finish("stopped")
                    return
                if outcome.drop is not None and outcome.drop in rungs:
                    rungs = tuple(name for name in rungs if name != outcome.drop)
            rank.tell(RoundDone(number))
            number += 1
            if outcome.last:
                self._finish("stopped")
                return
        self._finish("rounds done")

    def _warm_up(self) -> Generator[None, None, float]:
        """Ordinary steps until they are steady; the value is the last step's seconds.

        What trains is seen by what steps read, so the last of them is none in front of which validation was read.
        """
        fewest, most = _WARM_UP_STEPS
        clock = self.rank.clock
        begun = clock.settled()
        durations: list[float] = []

        def decide(surprised: list[bool]) -> bool:
            steady = len(durations) >= 2 and abs(durations[-1] / durations[-2] - 1) < _STEADY
            spent = clock.now() - begun > _SHARE * self.rank.orders.budget
            enough = len(durations) >= (_FEWEST_LONG_STEPS if spent else fewest) and (steady or spent)
            return (enough and not any(surprised)) or len(durations) >= most

        self.rank.tell(PhaseBegun("warm-up"))
        while True:
            if self.rank.agree(self._loops.surprised, decide):
                return durations[-1]
            last = clock.settled()
            yield
            durations.append(clock.settled() - last)

    def _choose_optimizer(self) -> bool:
        """With several optimizers, count steps at the one that steps least often; whether that is another one."""
        before, self.rank.updating = self.rank.updating, self._optimizers.rarest()
        self.rank.reset_counts()
        return self.rank.updating is not before

    def _succeeds(self) -> bool:
        """Another optimizer than the one whose steps are counted has stepped: whether it takes its place with that.

        Where it trains other parameters than were measured so far, that is another phase of the script's training,
        which has steps of its own: the one that was measured is over.
        """
        rank = self.rank
        heir = None if rank.updating is None else self._optimizers.heir(rank.updating)
        if heir is None:
            return False
        counted = rank.updating
        if rank.phase is not None and counted is not None and heir.trains != counted.trains:
            rank.note(
                f"the phase of training that was measured, of {counted.trains:,} parameters, is over: the next one "
                f"trains {heir.trains:,}, and has other steps; profile it by itself"
            )
            self.state = State.ENDING
            self._say_goodbye()
            return False
        rank.updating = heir
        if not heir.at_once:
            self._loops.skipped_steps()
        return heir.at_once

    # Ending -------------------------------------------------------------------------------------------

    def _measure_nothing(self) -> None:
        """From now on the script is on its own."""
        self.state, self.listens = State.FINISHED, False
        self.rank.stamps.let_go()
        self._loops.forget()

    def _finish(self, reason: str, why: str | None = None) -> None:
        self.rank.tell(discovery.standing_facts(self.rank))
        self.rank.tell(discovery.launch_facts(self.rank))
        self.rank.tell(ClimbEnded(reason, why))

    def _leave(self) -> None:
        """End the script here, before it could evaluate or save replicas that drifted apart."""
        if self.state is State.ENDING:
            self._finish("script ended")
        self._measure_nothing()
        for feed in self.rank.feeds:
            feed.end_workers()
        self._part()
        opened_files.sweep()
        if not self._exits:
            self._parting.here()

    def _part(self) -> None:
        """Leave together: a rank that is gone early would break the others' last exchange."""
        try:
            self.rank.control.exchange(None, lambda reports: None)
        except RuntimeError as error:
            print(f"stash: the last exchange failed: {error}", file=sys.stderr)
