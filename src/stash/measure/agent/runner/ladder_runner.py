"""Run the ladder inside a training loop, one optimizer step at a time.

The wraps tell the runner what the script does (``script.Listener``), and its ``loops`` what the script reads. What it
does about a step is one generator, ``_measure``: each step of the job resumes it until its next ``yield``. Ranks that
sit a block out wait within such a step, in ``Control``. How blocks are sized, run and judged is not known here.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from multiprocessing import current_process
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from stash.core.ladder import round_of_visits
from stash.measure.agent import script
from stash.measure.agent.runner import discovery, timed_steps, trial
from stash.measure.agent.runner.blocks import BlockRunner
from stash.measure.agent.runner.control import Control, Shutdown
from stash.measure.agent.runner.ladder_table import (
    TABLE,
    LadderAction,
    LadderEvent,
    LadderState,
)
from stash.measure.agent.runner.loops import PATIENCE, Loops
from stash.measure.agent.runner.operators import look_at_lookups
from stash.measure.agent.runner.optimizers import Optimizers
from stash.measure.agent.runner.rank import LoopEnded, LoopEndedError, OwnRank
from stash.measure.agent.runner.stamps import Clock
from stash.measure.agent.runner.unused_gradients import UnusedGradients
from stash.measure.agent.thread_events import ThreadEvent
from stash.measure.agent.wraps import opened_files, steps
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol.journal import Journal
from stash.measure.protocol.messages import JobFacts, LadderEnded, PhaseBegun, RoundDone
from stash.measure.protocol.orders import Orders, current_orders

_WARM_UP_STEPS = (3, 20)
_STEADY = 0.1
_SHARE = 0.15
"""Of the budget, beside which warming up may take little; a run of such long steps has two of them."""
_FEWEST_LONG_STEPS = 2
_PATIENCE, _ROLES_PATIENCE = 60.0, 10.0
"""Seconds after a rank's first step for all others to take theirs; the same where it hands data to single ranks."""
_APART = (
    "rank {rank} alone was measured: not all ranks had taken a step {seconds:g} s after its first, so they have other "
    "parts in the job (a server, an actor, an update without an optimizer); what it waits for them is in its collectives"
)
_SHUTDOWN_SECONDS = 1.5 * PATIENCE
"""For ranks to end together; one that ends alone must not wait for ever."""


def start(optimizer_module: ModuleType) -> None:
    """Begin to listen to this process's script; called with ``torch.optim.optimizer`` once it was imported."""
    orders = current_orders()
    if orders is None:
        return
    _subscribe_runner(orders)
    atexit.register(script.exits)
    script.report_hard_exits()
    steps.wrap_optimizer(optimizer_module)


def _subscribe_runner(orders: Orders) -> None:
    control = Control(orders.files, supervised=not orders.may_start_again)
    runner = LadderRunner(OwnRank(orders, Clock(), control, Journal(orders.files)))
    script.subscribe(runner)
    register_after_fork(runner, _subscribe_in_fork)


def _subscribe_in_fork(inherited: LadderRunner) -> None:
    """A process forked before any training may be the one that trains; a loader's workers are daemons and are not."""
    if not current_process().daemon and inherited.rank.counted_optimizer is None:
        _subscribe_runner(inherited.rank.orders)
        # what ``atexit`` is to a process that is no fork
        Finalize(None, script.exits, exitpriority=1)


class LadderRunner(script.Listener):
    """The one runner of a training process. ``shutdown`` never returns; tests put something milder in its place."""

    def __init__(self, rank: OwnRank, shutdown: Shutdown | None = None) -> None:
        self.rank = rank
        self.loops: Loops = Loops(rank, over=self.loop_ended)
        self.state = LadderState.WAITING
        self.listens = True
        self._shutdown = shutdown or Shutdown(rank.orders.files)
        self._exits = False
        """The script comes to an end by itself."""
        self._ending: threading.Thread | None = None
        """Tells the other ranks that the loop is over; they may never answer."""
        self._once = threading.Lock()
        self._optimizers = Optimizers()
        self._gradients = UnusedGradients()
        """While the ledger is kept."""
        self.handle = rank.handle  # type: ignore[method-assign]
        self._routine: Generator[None, None, None] | None = None
        """What is left of ``_measure``, from the first step on."""

    @property
    def counts(self) -> bool:  # type: ignore[override]
        return self.state is LadderState.COUNTING

    def _handle_event(self, event: LadderEvent) -> None:
        """Go by the table; a timer's thread may, too."""
        with self._once:
            state, actions = TABLE.get((self.state, event), (self.state, ()))
            if state is not self.state:
                self.state, self.listens = state, state in _LISTENING
        for action in actions:
            _ACTIONS[action](self)

    def has_drifted(self) -> bool:
        return self.rank.known.drifted

    def needs_checkpoints(self) -> bool:
        return self.rank.orders.whole_side_work

    def worked_since(self, moment: float) -> None:
        if self.rank.stamps.is_this_thread:
            self.rank.work_since(moment)

    def world_formed(self) -> None:
        self.rank.control.join()

    def beat(self) -> None:
        self.rank.beat()

    def note(self, text: str) -> None:
        self.rank.note(text)

    def stepped(self, optimizer: Any) -> None:
        """One optimizer's steps are the job's, or those of the one that takes its place: they resume the routine."""
        rank = self.rank
        rank.clock.step_ends()
        rank.tell(ThreadEvent.STEPPED)
        try:
            own = self._optimizers.note_step(optimizer)
            if rank.ledger.sees_epochs:
                self._gradients.note_step(own)
            if rank.counted_optimizer is None:
                rank.count_at(own)
                self._begin(optimizer)
            state = self.state
            if state is LadderState.ENDING or state is LadderState.FINISHED:
                return
            if own is not rank.counted_optimizer and not self._takes_over():
                return
            if state is LadderState.MEASURING or not rank.bare_step_ended():
                self._handle_event(LadderEvent.STEPPED)
        finally:
            rank.tell(ThreadEvent.SCRIPT_GOES_ON)

    def clears(self, owner: Any = None) -> None:
        if self.rank.ledger.sees_epochs and self.rank.stamps.is_this_thread:
            since = self.rank.clock.now()
            self._gradients.note_clearing(owner)
            self.rank.ledger.discount(self.rank.clock.now() - since)

    def _end_step(self) -> None:
        rank = self.rank
        rank.stamps.handle(ThreadEvent.STEP_ENDED, rank.clock.ended)
        scope.count_step()
        self.loops.stepped()

    def _resume(self) -> None:
        self.rank.beat()
        assert self._routine is not None
        try:
            next(self._routine)
        except StopIteration:
            self._handle_event(LadderEvent.DONE)
        except LoopEndedError:
            self._handle_event(LadderEvent.OTHERS_ENDED)
        else:
            self._handle_event(
                LadderEvent.LEAVES_ALONE if self.rank.bare.left else LadderEvent.AWAITS_STEP
            )

    def _begin_step(self) -> None:
        self.rank.tell(ThreadEvent.STEP_BEGINS)
        self.loops.step_begins()

    def _begin(self, optimizer: Any) -> None:
        """At the first step: learn what trains, and whether this process is to be measured."""

        rank = self.rank
        rank.stamps.attach()
        patience = _ROLES_PATIENCE if scope.handed_on else _PATIENCE
        scope.forget()  # what came before the first step was setting up
        rank.clock.watch(p.device for group in optimizer.param_groups for p in group["params"])
        if rank.device.type == "cuda":
            rank.stamps.follow_device(rank.device)
        if rank.place.world_size == 1 and (number := _number_among_copies()) is not None:
            if (
                number > 0 or rank.orders.may_start_again
            ):  # the launcher starts it again, as one process
                if number == 0 and rank.claim():
                    rank.publish(LadderEnded("no process group"))
                    self.beat()
                self._handle_event(LadderEvent.REFUSED)
                self._shutdown.leave_here()
                return
            self.note("the script trains on one device: it never called init_process_group")
        number = rank.place.rank
        if rank.place.world_size > 1:
            rank.control.await_others(patience)
        if rank.claim():
            if rank.control.stands_apart:
                rank.learn(switches=False)
                self.note(_APART.format(rank=number, seconds=patience))
            self._routine = self._measure()
            self._handle_event(LadderEvent.CLAIMED)
        else:
            # a trainer of its own, one of several: it trains on as it would alone
            self._handle_event(LadderEvent.REFUSED)

    def _measure(self) -> Generator[None, None, None]:
        """Warm up, find the rungs, then run block after block, round after round."""
        rank = self.rank
        step = yield from self._warm_up()
        if self._choose_optimizer():
            yield  # the interval under way began at another optimizer's step
            yield
        rank.train_from(self.loops.find_training_feeds())
        rank.learn(phase=self._optimizers.count_trained())
        if rank.place.world_size > 1:  # a hook costs the backward pass of small models a tenth
            yield from discovery.follow_last_gradient(rank)
        if rank.orders.trial is not None:
            rank.stop_ledger()
            discovery.choose_rungs(rank, step)
            yield from trial.run_trial(rank, self.loops, step)
            self._publish_end("trial done")
            return
        rank.publish(PhaseBegun("first-steps", step_seconds=step))
        first = yield from timed_steps.time_untouched(rank, self.loops, step)
        yield from look_at_lookups(rank)
        ladder = discovery.choose_rungs(rank, step)
        if first is not None:
            rank.agree(
                first, lambda ranks: rank.publish(*(message for seen in ranks for message in seen))
            )
        self._leave_first_steps()
        rungs = ladder.rungs
        unsafe = yield from discovery.try_switching(rank, ladder.looks)
        if (
            unsafe
            and rank.orders.may_start_again
            and rank.place.nodes == 1
            and rank.known.inseparable is None
        ):
            self._publish_end("unsafe", unsafe)
            return
        if unsafe:
            rungs = discovery.drop_switching(rank, rungs, unsafe)
        elif "node" in rungs and rank.place.nodes > 1 and rank.known.switches:
            rungs = yield from discovery.try_node(rank, rungs)
        if not rungs:
            self._publish_end("no rungs")
            return
        blocks = BlockRunner(rank, self.loops, step, rungs)
        reason, rungs = yield from self._run_rounds(blocks, rungs)
        if rank.orders.traces is not None:
            yield from blocks.trace_top_rung(rungs[-1], Path(rank.orders.traces))
        self._publish_end(reason)

    def _leave_first_steps(self) -> None:
        """Tell what they showed of gradients, and keep account of nothing but saves."""
        self.rank.publish(JobFacts(unused_gradients=self._gradients.finish()))
        # what another rank waits for a save is in its steps
        self.rank.stop_ledger(times_saves=self.rank.place.world_size == 1)

    def _run_rounds(
        self, blocks: BlockRunner, rungs: tuple[str, ...]
    ) -> Generator[None, None, tuple[str, tuple[str, ...]]]:
        """Why they ended, and the rungs that are left."""
        rank = self.rank
        first, last = rank.orders.first_round, rank.orders.rounds
        for number in itertools.count(first) if last is None else range(first, first + last):
            is_last = False
            for visit in round_of_visits(rungs, number, rank.place.world_size):
                outcome = yield from blocks.run_visit(visit, number)
                if outcome.stop:
                    return "stopped", rungs
                rungs = tuple(name for name in rungs if name != outcome.drop)
                is_last = outcome.last
            rank.publish(RoundDone(number, blocks.round_seconds))
            if is_last:
                return "stopped", rungs
        return "rounds done", rungs

    def _warm_up(self) -> Generator[None, None, float]:
        """Take ordinary steps until they are steady; the value is the last step's seconds.

        Where they never were, as those that wait for a burst of the loader's workers, it is the mean of the last four.
        What trains is seen by what steps read, so the last of them is none in front of which validation was read. An
        optimizer that has not stepped may be one that steps seldom, and counts the job's steps.
        """
        fewest, most = _WARM_UP_STEPS
        clock = self.rank.clock
        begun = clock.synchronize()
        durations: list[float] = []

        def is_steady() -> bool:
            return len(durations) >= 2 and abs(durations[-1] / durations[-2] - 1) < _STEADY

        def is_spent() -> bool:
            return clock.now() - begun > _SHARE * self.rank.orders.budget

        def may_surprise() -> bool:
            lacks_any = self._optimizers.lacks_any(list(steps.own_update.others))
            return self.loops.is_surprised or (lacks_any and not is_spent())

        def decide(surprised: list[bool]) -> bool:
            spent = is_spent()
            warm = len(durations) >= (_FEWEST_LONG_STEPS if spent else fewest) and (
                is_steady() or spent
            )
            return (warm and not any(surprised)) or len(durations) >= most

        self.rank.publish(PhaseBegun("warm-up"))
        while True:
            if self.rank.agree(may_surprise(), decide):
                return durations[-1] if is_steady() else fmean(durations[-4:])
            last = clock.synchronize()
            yield
            durations.append(clock.synchronize() - last)

    def _choose_optimizer(self) -> bool:
        """With several optimizers, count steps at the one that steps least often; whether that is another one."""
        before, rarest = self.rank.counted_optimizer, self._optimizers.find_rarest()
        self.rank.count_at(rarest)
        scope.reset_counts()
        return rarest is not before

    def _takes_over(self) -> bool:
        """Another optimizer than the one whose steps are counted has stepped: whether it takes its place with that.

        Where it trains other parameters than were measured so far, that is another phase of the script's training,
        which has steps of its own: the one that was measured is over.
        """
        rank, counted = self.rank, self.rank.counted_optimizer
        successor = None if counted is None else self._optimizers.find_successor(counted)
        if counted is None or successor is None:
            return False
        if rank.known.phase is not None and successor.trains != counted.trains:
            rank.note(
                f"the phase of training that was measured, of {counted.trains:,} parameters, is over: the next one "
                f"trains {successor.trains:,}, and has other steps; profile it by itself"
            )
            self._handle_event(LadderEvent.PHASE_ENDED)
            return False
        rank.count_at(successor)
        if not successor.at_once:
            self.loops.skipped_steps()
        return successor.at_once

    def abandoned(self) -> None:
        self._handle_event(LadderEvent.ABANDONED)

    def exits(self, last: bool) -> None:
        """End with the other ranks, and not before the launcher knows."""
        self._exits = True
        self.loop_ended()
        if self._ending is not None:
            self._ending.join(_SHUTDOWN_SECONDS)
        if last and self._ending is not None:  # the other ranks may not have come to their end yet
            self._shutdown.leave_at_exit()

    def loop_ended(self) -> None:
        """The script's training loop is over before the schedule is: end together, keep what there is."""
        self._handle_event(LadderEvent.LOOP_ENDED)

    def _tell_others(self) -> None:
        self._ending = threading.Thread(target=self._end_together, daemon=True)
        self._ending.start()
        self._ending.join(_SHUTDOWN_SECONDS)

    def _end_together(self) -> None:
        """Ranks end their loops together or not at all."""
        try:
            self.rank.agree(LoopEnded(), lambda reports: None)
        except LoopEndedError:
            self._handle_event(LadderEvent.OTHERS_ENDED)
        except RuntimeError:
            pass  # another rank died first; its own error tells why

    def _publish_end(self, reason: str, why: str | None = None) -> None:
        self.rank.publish(discovery.standing_facts(self.rank))
        self.rank.publish(discovery.launch_facts(self.rank))
        self.rank.publish(LadderEnded(reason, why))

    def _stop(self) -> None:
        """From now on the script is on its own."""
        self.rank.stop_ledger()
        self.rank.stamps.let_go()
        self.loops.stop_waiting()

    def _leave_script(self) -> None:
        """End the script here, before it could evaluate or save replicas that drifted apart."""
        for feed in self.rank.feeds:
            feed.end_workers()
        try:  # together: a rank that is gone early would break the others' last exchange
            self.rank.control.exchange(None, lambda reports: None)
        except RuntimeError as error:
            print(f"stash: the last exchange failed: {error}", file=sys.stderr)
        opened_files.remove_placeholders()
        if not self._exits:
            self._shutdown.leave_here()


_LISTENING = (LadderState.WAITING, LadderState.MEASURING, LadderState.ENDING)
_ACTIONS: Mapping[LadderAction, Callable[[LadderRunner], None]] = {
    LadderAction.END_STEP: LadderRunner._end_step,
    LadderAction.RESUME: LadderRunner._resume,
    LadderAction.BEGIN_STEP: LadderRunner._begin_step,
    LadderAction.LEAVE_ALONE: lambda runner: runner.loops.leave_alone(),
    LadderAction.TELL_OTHERS: LadderRunner._tell_others,
    LadderAction.TELL_OTHERS_NOW: LadderRunner._end_together,
    LadderAction.PUBLISH_END: lambda runner: runner._publish_end("script ended"),
    LadderAction.STOP: LadderRunner._stop,
    LadderAction.LEAVE: LadderRunner._leave_script,
}


def _number_among_copies() -> int | None:
    """This process's number among several ranks that a launcher started; None if it started one.

    Without an address a number is left from somewhere else.
    """
    rank, size = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    several = (
        "MASTER_ADDR" in os.environ and rank.isdecimal() and size.isdecimal() and int(size) > 1
    )
    return int(rank) if several else None
