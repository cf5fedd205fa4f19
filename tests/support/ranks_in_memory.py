"""The ladder without processes: ranks on set clocks that agree in memory, and loops that train when asked to."""

import threading
from dataclasses import dataclass, field

import torch

from stash.core.jsonl import Tail
from stash.core.measured import Block
from stash.measure.agent import script
from stash.measure.agent.data.feeds import Feed, OpenLoops, WatchedFeed
from stash.measure.agent.runner.control import Control, Place, Shutdown
from stash.measure.agent.runner.ladder_runner import LadderRunner
from stash.measure.agent.runner.rank import OwnRank
from stash.measure.agent.runner.stamps import Clock
from stash.measure.agent.wraps.scope import scope
from stash.measure.protocol.folder import RunFolder
from stash.measure.protocol.journal import Journal, new_messages
from stash.measure.protocol.messages import LadderEnded, Message, Payload
from stash.measure.protocol.orders import Orders
from stash.measure.protocol.wire import pack_value, unpack_value

PATIENCE = 60.0


class SetClock(Clock):
    """Time that passes only when it is set, on a CPU."""

    def __init__(self):
        super().__init__()
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def synchronize(self):
        return self.seconds


class Table:
    """Where ranks in threads of one process agree, as ``Control`` lets ranks in processes do."""

    def __init__(self, ranks):
        self.barrier = threading.Barrier(ranks, timeout=PATIENCE)
        self.reports = [None] * ranks
        self.decision = None


class Seat(Control):
    """One rank's place at a table."""

    def __init__(self, table, rank):
        ranks = tuple(range(len(table.reports)))
        self.place = Place(rank, len(ranks), 0, rank, ranks, 1)
        self._table = table
        self.stands_apart = False

    def join(self):
        pass

    def await_others(self, seconds):
        pass

    def exchange(self, report, decide):
        table = self._table
        table.reports[self.place.rank] = pack_value(
            Payload.pack(report) if isinstance(report, Message) else report
        )
        table.barrier.wait()
        if self.place.rank == 0:
            table.decision = pack_value(decide(list(map(unpack_value, table.reports))))
        table.barrier.wait()
        decision = unpack_value(table.decision)
        table.barrier.wait()
        return decision


@dataclass
class Job:
    """One rank that trains: its runner, its clock, and how it left."""

    folder: RunFolder
    runner: LadderRunner
    clock: SetClock
    left: list[str] = field(default_factory=list)
    steps: int = 0

    def __post_init__(self):
        self.optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)

    def step(self, seconds):
        """One step of the training loop."""
        self.clock.seconds += seconds
        self.steps += 1
        script.backward_begins()
        if self.runner.listens:
            self.runner.stepped(self.optimizer)

    def messages(self):
        return new_messages(Tail(self.folder.journal))

    def blocks(self):
        return [message for message in self.messages() if isinstance(message, Block)]


def orders(folder, **changes):
    """For a launch that stops by itself after two rounds."""
    rungs = ("solo", "crowd", "node", "cluster", "warm", "cold")
    return Orders(**{"folder": str(folder), "rungs": rungs, "budget": 1.0, "rounds": 2, **changes})


def job(given, seat=None):
    """A rank that has not stepped yet; without a ``seat`` the only one."""
    clock, left = SetClock(), []
    control = seat or Control(given.files)
    rank = OwnRank(given, clock, control, Journal(given.files))
    return Job(given.files, LadderRunner(rank, RecordedShutdown(left)), clock, left)


class RecordedShutdown(Shutdown):
    """Records how a rank left, instead of waiting to be ended."""

    def __init__(self, left):
        self.left = left

    def leave_here(self):
        self.left.append("left")

    def leave_at_exit(self):
        self.left.append("exited")


@dataclass
class Loop:
    """What the runner knows of a loop over a feed: as little as a handle does."""

    feed: Feed
    taken: int = 0
    trains: bool = False

    def note_training(self):
        self.trains = True


def reading(job, batches):
    """What a script does, epoch after epoch: each batch, and its feed's mode; ends when the runner has left."""
    feed = WatchedFeed(batches)
    while job.runner.listens:
        yield from epoch(job, feed)


def epoch(job, feed):
    """One loop over a feed, passed on to the runner as a handle would."""
    loop = Loop(feed)
    feed.open_loops = OpenLoops(feed.loops + 1)
    job.runner.loops.opened(loop)
    try:
        while job.runner.listens:
            loop.taken += 1
            if job.runner.loops.should_stop(loop):
                return
            try:
                batch = job.runner.loops.next_batch(feed)
            except StopIteration:
                return
            yield batch, feed.mode
    finally:
        feed.open_loops = OpenLoops(feed.loops - 1)
        if job.runner.listens:
            job.runner.loops.closed(loop)


silence = script.unsubscribe


BATCHES = [torch.full((4, 2), float(number)) for number in range(8)]


def seconds_of(feed):
    """A job whose exchange takes 2 s and whose loader 0.5 s, on top of 1 s of compute."""
    return (
        1.0
        + (2.0 if scope.name == "world" else 0.0)
        + (0.0 if feed in ("replay", "resident") else 0.5)
    )


def train(one, most=500):
    """Train until the runner leaves."""
    for _, feed in reading(one, BATCHES):
        one.step(seconds_of(feed))
        if one.steps >= most:
            return
    one.runner.loops.stop_waiting()  # a real process is gone by now, and its timer with it


def end_reason(one):
    return next(message.reason for message in one.messages() if isinstance(message, LadderEnded))
