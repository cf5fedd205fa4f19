"""Launches without processes: time that passes only in ``sleep``, and agents that are a generator each.

Such a generator is given the launch's orders and a ``FakeProcess``; every look of the launcher (``poll``) runs it to
its next ``yield``, and what it returns is the exit status.
"""

import os
from collections.abc import Callable, Generator
from pathlib import Path
from unittest.mock import patch

from stash.core.ladder import NAMES
from stash.core.measured import Block, Rank
from stash.measure.launcher.engines import Cluster
from stash.measure.launcher.folder_lock import FolderLock
from stash.measure.launcher.job import Job
from stash.measure.launcher.neighbours import NeighbouringRuns
from stash.measure.launcher.profile_options import ProfileOptions
from stash.measure.launcher.session import ProfileSession
from stash.measure.protocol.journal import Beat, Journal
from stash.measure.protocol.messages import (
    LadderChosen,
    LadderEnded,
    PhaseBegun,
    RoundDone,
    RoundsPlanned,
)
from stash.measure.protocol.orders import Orders, current_orders

Agents = Callable[[Orders, "FakeProcess"], Generator[None, None, int]]


class SetTime:
    """The module ``time``, without the waiting."""

    def __init__(self):
        self.now = 1000.0
        self.interrupt_at = float("inf")

    def time(self):
        return self.now

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        if self.now >= self.interrupt_at:
            self.interrupt_at = float("inf")
            raise KeyboardInterrupt


class FakeProcess:
    """What a launch looks like from outside."""

    def __init__(self, folder, orders, agents, clock):
        self.folder, self.orders, self.clock = folder, orders, clock
        self.words, self.tracebacks, self.gone, self.stopped = "", [], [], False
        self._journal, self._beats = Journal(folder), {}
        folder.output.touch()
        self.exit_codes = {}
        self._code = None
        self._agents = agents(orders, self)

    def poll(self):
        if self._code is None:
            try:
                next(self._agents)
            except StopIteration as ended:
                self._code = ended.value
        return self._code

    def stop(self):
        self.stopped = True

    def finish(self, exiting):
        self.stopped, self._code = True, -9
        return {number: self.exit_codes.get(number, 0) for number in exiting}

    def output(self):
        return self.words

    def crashes(self):
        return self.tracebacks

    def silent(self):
        return self.gone

    def beats(self):
        return self._beats

    def tell(self, *messages):
        for message in messages:
            self._journal.write(message)

    def step(self, steps, rank=0, pid=1):
        self._beats[rank] = Beat(pid, steps, self.clock.now)

    def ladder(self, *rungs):
        """The first messages of a ladder of one rank."""
        self.step(1)
        self.tell(
            PhaseBegun("warm-up"),
            Rank(0, 0, 0, "cpu"),
            LadderChosen(rungs, {}),
            RoundsPlanned(1.0),
        )

    def round(self, number, *times, rank=0):
        """One block of a second or so for each rung that the ladder has."""
        rungs = [name for name in NAMES if name in self.orders.rungs][: len(times)]
        for rung, seconds in zip(rungs, times, strict=True):
            self.tell(
                PhaseBegun(rung, number),
                Block(number, rung, rank, 1, seconds, launch=self.orders.launch),
            )
        self.tell(RoundDone(number, sum(times)))


def expedition(
    *agents,
    rungs=("solo", "warm"),
    job=None,
    cluster=None,
    **wishes,
):
    """A ``stash profile`` whose launches are ``agents``, one after the other, the last one again and again."""
    clock, started = SetTime(), []

    def start(request, folder):
        process = FakeProcess(
            folder, orders_of(request), agents[min(len(started), len(agents) - 1)], clock
        )
        process.command = request.argv
        started.append(process)
        return process

    given = ProfileOptions(**{"budget": 60.0, "rungs": tuple(rungs), **wishes})
    job, cluster = job or Job("script", "train.py"), cluster or Cluster(engine="local")
    # whatever else this machine measures
    no_runs = NeighbouringRuns(sockets=Path("/no/such/table"))
    unlocked = FolderLock(None)  # tests run side by side
    session = ProfileSession(
        job, cluster, given, clock=clock, start=start, neighbours=no_runs, folder_lock=unlocked
    )
    return session, started


def orders_of(request):
    """The orders that a request hands to its agents."""
    current_orders.cache_clear()
    with patch.dict(os.environ, request.variables):
        orders = current_orders()
    current_orders.cache_clear()
    assert orders is not None
    return orders


def run(*agents, **given):
    """The result of such a ``stash profile``, and its launches."""
    one, started = expedition(*agents, **given)
    return one.measure_job(), started


def even_agents(seconds=1.0, fails_after=None):
    """Agents that measure even rounds until they are told to stop."""

    def agents(orders, process):
        process.ladder(*orders.rungs)
        number = orders.first_round
        while not orders.files.stop.exists():
            yield
            if fails_after is not None and number == fails_after:
                process.tracebacks = [
                    "Traceback (most recent call last):\n  x\nValueError: no such layer\n"
                ]
                return 1
            process.clock.now += seconds
            process.step(10 * (number + 1))
            process.round(number, 1.0 + 0.001 * (number % 3), 1.5)
            number += 1
        process.tell(LadderEnded("stopped"))
        return 0

    return agents
