"""The climber: runs the ladder's blocks inside the training loop, one optimizer step at a time.

Its work is written as one generator, ``_climb``; every ``yield`` hands control back to the training script
until its next optimizer step. Ranks that sit a block out wait in ``Control.exchange``, inside that step.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from stash.base.ladder import round_of_visits
from stash.measure.agent import boot
from stash.measure.agent.climb import blocks, discovery
from stash.measure.agent.climb.clock import Clock
from stash.measure.agent.climb.control import Control
from stash.measure.agent.wraps import checkpoints, collectives, loader, replicas
from stash.measure.run.orders import Plan
from stash.measure.run.stream import Heart, Trace

_WARM_UP_STEPS = (3, 20)
_STEADY = 0.1
_PARTING = 20.0
T = TypeVar("T")


class Climber:
    """The one climber of a training process; ``finished`` once the schedule is over."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pid = os.getpid()
        self.clock = Clock()
        self.control = Control()
        self.trace = Trace(plan)
        self.finished = False
        self.drifted = False
        self.optimizer_steps = 0
        self.feeds: list[loader.Feed] = []
        self.block: blocks.Running | None = None
        self._heart = Heart(plan)
        self._notes: list[str] = []
        self.reference: Any = None
        self._counts: dict[int, int] = {}
        self._open: dict[int, weakref.ref[loader.Handle]] = {}
        self._optimizers: dict[int, Any] = {}
        self._routine: Generator[None, None, None] | None = None
        self._ending = False
        self._let_go = False
        self.steps_counted = 0
        """Steps under scope world since collectives are counted."""
        self.switches = not plan.isolated
        boot.outlive_not(plan.launcher_pid)

    @property
    def device(self) -> Any:
        return self.clock.device

    # Called by the script's side ----------------------------------------------------------------------

    def join(self) -> None:
        """The default process group was formed."""
        self.control.join()

    def on_step(self, optimizer: Any) -> None:
        """An optimizer stepped; the reference optimizer's steps are the job's."""
        self.optimizer_steps += 1
        self._optimizers[id(optimizer)] = optimizer
        self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        if self.reference is None:
            self._begin(optimizer)
        if optimizer is not self.reference or self._routine is None:
            return
        self.beat()
        self.steps_counted += collectives.scope() == "world"
        self._close_interval()
        try:
            next(self._routine)
        except StopIteration:
            self._leave()

    def beat(self) -> None:
        """Let the launcher see that this rank is alive, and how far it got."""
        self._heart.beat(self.control.place.rank, self._counts.get(id(self.reference), 0))

    def serve(self, feed: loader.Feed, handle: loader.Handle) -> Any:
        """The next batch for a loop: a training loader's through its feed, any other's first one only."""
        if self.feeds and not feed.training and handle.served > 1:
            self.closed(feed, handle)
            raise StopIteration
        try:
            return feed.next()
        except StopIteration:
            self._open.pop(id(handle), None)
            self._resume()
            raise

    def opened(self, handle: loader.Handle) -> None:
        """A loop took an iterator."""
        if self._let_go:
            if not handle.feed.training:
                self.loop_ended()
            self._let_go = False  # the next epoch of the same loop
        self._open[id(handle)] = weakref.ref(handle)
        if self.block is not None and not handle.feed.training:
            self.block.interrupt(self.clock.settled())

    def closed(self, feed: loader.Feed, handle: loader.Handle) -> None:
        """A loop dropped its iterator.

        Of a training loader, that is the end of training, or of an epoch, or an exception on its way out:
        what the script does next will tell.
        """
        self._open.pop(id(handle), None)
        if feed.training and handle.served > feed.per_step:
            self._let_go = True
        elif not feed.training:
            self._resume()

    def _resume(self) -> None:
        if self.block is not None:
            self.block.resume(self.clock.settled())

    def loop_ended(self) -> None:
        """The script's training loop is over before the schedule is: end together, keep what there is."""
        if self.finished or self._ending or self.reference is None:
            return
        self._ending = True
        # Ranks end their loops together or not at all; one that ends alone must not wait for ever.
        parting = threading.Thread(target=self._say_goodbye, daemon=True)
        parting.start()
        parting.join(_PARTING)

    def _say_goodbye(self) -> None:
        try:
            self.agree(Ended(), lambda reports: None)
        except RuntimeError:
            pass  # another rank died first; its own error tells why

    def agree(self, report: Any, decide: Callable[[list[Any]], T]) -> T:
        """Exchange reports; if any rank's loop is over, every rank leaves here."""

        def judge(reports: list[Any]) -> T | Ended:
            return Ended() if any(isinstance(r, Ended) for r in reports) else decide(reports)

        decision = self.control.exchange(report, judge)
        if isinstance(decision, Ended):
            self._ending = True
            self._leave()
            raise AssertionError("unreachable: the process has left")
        return decision

    def acts(self) -> None:
        """The script does something else than train: after the loop's end, that is where it must stop."""
        if self._let_go:
            self.loop_ended()

    def note(self, text: str) -> None:
        """Say something in the profile, once."""
        if text not in self._notes:
            self._notes.append(text)
            if self.control.leads:
                self.trace.write("note", text=text)

    # The climb ----------------------------------------------------------------------------------------

    def _begin(self, optimizer: Any) -> None:
        import torch

        self.reference = optimizer
        collectives.issued.clear()
        self.clock.watch(p.device for group in optimizer.param_groups for p in group["params"])
        if self.clock.device.type == "cpu":
            torch.set_flush_denormal(True)
        if self.control.place.world_size == 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            self._alone_among_copies()
        self._routine = self._climb()

    def _alone_among_copies(self) -> None:
        """Started as several ranks, but the script never formed a process group: only the first goes on."""
        if int(os.environ.get("RANK", "0")) > 0:
            self.finished = True
            _flush()
            os._exit(0)
        self.note("the script trains on one device: it never called init_process_group")

    def _close_interval(self) -> None:
        """A step ended: loaders still open that were read since the last one are the training loaders."""
        reading = [h for h in (ref() for ref in list(self._open.values())) if h is not None]
        for feed in {id(h.feed): h.feed for h in reading}.values():
            if feed.since_step and not self.feeds:
                feed.training = True
                feed.per_step = feed.since_step
        for feed in [h.feed for h in reading]:
            feed.since_step = 0

    def _climb(self) -> Generator[None, None, None]:
        step = yield from self._warm_up()
        if self._choose_reference():
            yield  # the interval under way began at another optimizer's step
            yield
        self.feeds = [feed for feed in self._distinct_feeds() if feed.training and len(feed.ring)]
        rungs = discovery.choose_rungs(self)
        crew = blocks.Crew(self, step)
        unsafe = yield from discovery.try_switching(self)
        if unsafe and self.plan.may_isolate and self.control.place.nodes == 1:
            self._finish("unsafe", why=unsafe)
            return
        if unsafe:
            rungs = discovery.without_switching(self, rungs, unsafe)
        if not rungs:
            self._finish("no rungs")
            return
        crew.start()
        number = self.plan.first_round
        while self.plan.rounds is None or number < self.plan.first_round + self.plan.rounds:
            for visit in round_of_visits(rungs, number, self.control.place.world_size):
                outcome = yield from crew.visit(visit, number)
                if outcome.stop:
                    self._finish("stopped")
                    return
                if outcome.drop is not None and outcome.drop in rungs:
                    rungs = tuple(name for name in rungs if name != outcome.drop)
            if self.control.leads:
                self.trace.write("round", number=number)
            number += 1
        self._finish("rounds done")

    def _warm_up(self) -> Generator[None, None, float]:
        """Ordinary steps until they are steady; the value is the last step's seconds."""
        fewest, most = _WARM_UP_STEPS
        begun = last = self.clock.settled()
        durations: list[float] = []

        def decide(reports: list[Any]) -> bool:
            steady = len(durations) >= 2 and abs(durations[-1] / durations[-2] - 1) < _STEADY
            spent = self.clock.now() - begun > 0.15 * self.plan.budget
            enough = len(durations) >= fewest and (steady or spent)
            return enough or len(durations) >= most

        if self.control.leads:
            self.trace.write("phase", name="warm-up")
        while True:
            if self.agree(None, decide):
                return durations[-1]
            last = self.clock.settled()
            yield
            durations.append(self.clock.settled() - last)

    def _choose_reference(self) -> bool:
        """With several optimizers, count steps at the one that steps least often; whether that is another one."""
        before = self.reference
        rarest = min(self._counts, key=lambda key: self._counts[key])  # ties keep the first
        self.reference = self._optimizers[rarest]
        collectives.issued.clear()
        self.steps_counted = 0
        return self.reference is not before

    def _distinct_feeds(self) -> list[loader.Feed]:
        found = [h.feed for h in (ref() for ref in self._open.values()) if h is not None]
        return list({id(feed): feed for feed in found}.values())

    def set_scope(self, scope: Any) -> None:
        """Switch the exchange; from the first scope below world on, replicas drift apart."""
        if scope == "node" and self.control.place.nodes == 1:
            scope = "world"  # the node is all there is: train exactly as the job does
        elif scope == "node" and self.control.node_group is None:
            scope = "self"  # the only rank of its node
        replicas.set_scope(scope, self.control.node_group)

    # Ending -------------------------------------------------------------------------------------------

    def _finish(self, reason: str, **fields: Any) -> None:
        if self.control.leads:
            self.trace.write("workload", **discovery.standing_facts(self))
            self.trace.write("end", reason=reason, **fields)

    def _leave(self) -> None:
        """End the script here, before it could evaluate or save replicas that drifted apart."""
        self.finished = True
        if self._ending and self.control.leads:
            self._finish("script ended")
        for feed in self.feeds:
            for worker in getattr(getattr(feed, "source", None), "_workers", ()):
                worker.terminate()
        self._part()
        checkpoints.sweep()
        _flush()
        os._exit(0)

    def _part(self) -> None:
        """Leave together: a rank that is gone early would break the others' last exchange."""
        try:
            self.control.exchange(None, lambda reports: None)
        except RuntimeError as error:
            print(f"stash: the last exchange failed: {error}", file=sys.stderr)


class Ended:
    """A rank's report that its training loop is over."""


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
