"""A fleet of forked processes in place of Ray's: the real head, servers and workers, each stopped where one says.

The head asks this process for machines through a pipe and gets the coordinator's calls from them over a loopback
socket. A process ``acts`` at a named point of its own code: it is killed, or stops for a while. Linux only.
"""

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from stash.core.errors import JobError, StashError, UserError
from stash.spot.train import actors, head, saved_shards, server, worker
from stash.spot.train.coordinator import Coordinator
from stash.spot.train.elastic_job import load_job
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace, write_orders

SECRET, LEASE_KEY = b"the run's secret", b"the coordinator's"
_ANSWER_SECONDS = 20.0
_HOST = "127.0.0.1"


class GoneError(Exception):
    """A machine is no more, as Ray's RayActorError says."""


@dataclass(frozen=True)
class Moment:
    """What one process does at one point of its code, the ``count``-th time it comes there."""

    who: str
    point: str
    count: int = 3
    stop_seconds: float | None = None
    """``None``: it is killed."""
    counts_as_gone: bool = False
    """While it is stopped the head is told that it is gone; then it goes on all the same."""

    def act(self):
        os.kill(os.getpid(), signal.SIGKILL if self.stop_seconds is None else signal.SIGSTOP)


class _Office(BaseManager):
    """What the head, or a server, answers over a socket."""


class ForkedFleet:
    """The head's actors, as ``ActorFleet`` has them."""

    def __init__(self, orders, machines):
        self._orders, self._machines = orders, machines
        self._coordinator = Coordinator(len(orders.servers), orders.workers[0].samples, LEASE_KEY)
        self._news = queue.Queue()
        self._controls = {}
        self._pool = ThreadPoolExecutor(16)
        self._saving = []
        self._office = _serve(_Desk(self._coordinator, self._news))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._news.put((self._machines.recv(), False, GoneError()))

    def ask(self, method, *words):
        return getattr(self._coordinator, method)(*words)

    def start_server(self, name, number):
        self._machines.send((name, number, self._office))

    def start_worker(self, place):
        self._machines.send((place.name, place, self._office))

    def changes(self, seconds):
        try:
            name, arrived, answer = self._news.get(timeout=seconds)
        except queue.Empty:
            return []
        if arrived and answer is not None:
            answer, address = answer
            self._controls[name] = _connect(address)
        return [(name, arrived, answer)]

    def end_hanging(self):
        return []

    def applied_ranges(self, names):
        return self._answers([self._pool.submit(self._controls[name].applied) for name in names])

    def begin_saving(self, names):
        self._saving = [self._pool.submit(self._controls[name].save) for name in names]

    def has_saved(self, seconds=0.0):
        until = time.monotonic() + seconds
        while not all(each.done() for each in self._saving) and time.monotonic() < until:
            time.sleep(0.02)
        if not all(each.done() for each in self._saving):
            return False
        return None if self._answers(self._saving) is None else True

    def save_model(self, names, path):
        arrays = self._answers([self._pool.submit(self._controls[name].packed) for name in names])
        if arrays is None:
            return False
        server.save_model(load_job(self._orders.job), [torch.tensor(each) for each in arrays], path)
        return True

    def _answers(self, futures):
        try:
            return [each.result(_ANSWER_SECONDS) for each in futures]
        except (EOFError, ConnectionError, TimeoutError):
            return None
        except Exception as error:
            raise self.describe_error("a server", error) from error

    def is_gone(self, error):
        return isinstance(error, GoneError)

    def describe_error(self, who, error):
        return (
            error
            if isinstance(error, UserError)
            else JobError(f"{who} failed: {type(error).__name__}: {error}")
        )

    def kill(self, name):
        self._machines.send((name, None, None))

    def close(self):
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Desk:
    """What workers and servers call in the head's process."""

    def __init__(self, coordinator, news):
        self.join, self.servers = coordinator.join, coordinator.servers
        self.next_lease, self.later = coordinator.next_lease, coordinator.later
        self.tell = lambda name, arrived, answer: news.put((name, arrived, answer))


class _Control:
    """What the head calls in a server's process."""

    def __init__(self, shard, folder):
        self.applied = lambda: shard.applied.ranges
        self.save = lambda: str(shard.save(folder))
        self.packed = lambda: shard.pack().numpy()


_METHODS = ("join", "servers", "next_lease", "later", "tell", "applied", "save", "packed")
_Office.register("desk", exposed=_METHODS)


def _serve(desk):
    """Answer in threads; the address."""
    office = type("_Own", (BaseManager,), {})
    office.register("desk", lambda: desk, exposed=_METHODS)
    served = office((_HOST, 0), LEASE_KEY).get_server()
    threading.Thread(target=served.serve_forever, daemon=True).start()
    return served.address


def _connect(address):
    office = _Office(address, LEASE_KEY)
    office.connect()
    return office.desk()


def _serve_shard(orders, name, number, desk):
    shard = server.ParameterShard(load_job(orders.job), number, len(orders.servers))
    found = shard.resume(Path(orders.checkpoints))
    served = server.ShardServer(shard, _HOST, server.RunKeys(SECRET, LEASE_KEY), orders.at_once)
    control = _serve(_Control(shard, Path(orders.checkpoints)))
    skipped = () if found is None else found.skipped
    desk.tell(name, True, ((served.address, shard.version, skipped), control))
    shard.failure.result()


def _train(orders, place, desk, links):
    trainer = worker.Trainer(load_job(orders.job), len(orders.servers), place.samples)
    desk.join(place.name, place.samples)
    desk.tell(place.name, True, None)

    class _Client:
        next_lease, later = desk.next_lease, desk.later

        @staticmethod
        def servers():
            return tuple(links(place.name, address) for address in desk.servers())

    return worker.work(place.name, trainer, _Client(), SECRET)


# Where a process acts: by name, the object and attribute whose calls are counted, and whether before or after one.

_BEFORE, _AFTER, _HALF = "before", "after", "half"
POINTS = {
    "has a lease": (worker.Trainer, "gradients", _BEFORE),
    "has its gradient": (worker.Trainer, "is_finite", _AFTER),
    "has sent half its gradient": (worker, "send_bytes", _HALF),
    "was applied, and did not report it": (worker.ServerLinks, "push", _AFTER),
    "has the parameters": (worker.Trainer, "load", _AFTER),
    "has a gradient": (server.ParameterShard, "apply_gradients", _BEFORE),
    "has applied it": (server.ParameterShard, "apply_gradients", _AFTER),
    "has sent half its parameters": (server, "send_bytes", _HALF),
    "begins a checkpoint": (server.ParameterShard, "save", _BEFORE),
    "has written half a checkpoint": (saved_shards, "write_whole", _HALF),
    "has written a checkpoint": (saved_shards, "write_whole", _AFTER),
    "follows updates": (head.TrainingHead, "_follow", _AFTER),
    "begins to save": (head.TrainingHead, "_begin_saving", _AFTER),
    "finishes": (head.TrainingHead, "_audit_books", _BEFORE),
}


def _arm(moment):
    """Have this process act at its point."""
    place, attribute, when = POINTS[moment.point]
    original, left = getattr(place, attribute), [moment.count]

    def call(*words, **named):
        left[0] -= 1
        if left[0] or when == _AFTER:
            found = original(*words, **named)
            if not left[0]:
                moment.act()
            return found
        if when == _HALF and attribute == "send_bytes":
            link, content = words
            link.sendall(content[: len(content) // 2])
            moment.act()
            return link.sendall(content[len(content) // 2 :])
        if when == _HALF:  # a file that is whole or not there: half of it under its temporary name
            (words[0].parent / f".{words[0].name}.half.tmp").write_bytes(
                bytes(words[-1])[: len(words[-1]) // 2]
            )
        moment.act()
        return original(*words, **named)

    setattr(place, attribute, call)


@dataclass
class ForkedMachines:
    """This process as the cloud: it forks who is asked for, sees who ends, and lets go on who was stopped."""

    orders: TrainingOrders
    folder: Path
    moments: Sequence[Moment] = ()
    links: Callable[[str, Any], Any] = lambda worker, address: address
    """By which address a worker reaches a server: a proxy's."""
    acted: list[float] = field(default_factory=list)
    """When processes acted."""
    _names: dict[int, str] = field(default_factory=dict)
    _stopped: dict[int, tuple[float, Moment]] = field(default_factory=dict)
    _head: int = 0
    _status: int | None = None

    def start(self):
        # imports much, once for all that are forked
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
        write_orders(self.folder, self.orders)
        self._pipe, theirs = Pipe()
        self._head = self._fork("head", lambda: self._lead(theirs))
        theirs.close()

    def _lead(self, pipe):
        self._pipe.close()
        with mock.patch.object(actors, "ActorFleet", lambda orders: ForkedFleet(orders, pipe)):
            return head.main(self.folder)

    def _fork(self, name, task):
        number = os.fork()
        if number:
            self._names[number] = name
            return number
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for moment in self.moments:
                if moment.who == name:
                    _arm(moment)
            code = task()
        finally:
            os._exit(code)

    def status(self):
        with contextlib.suppress(EOFError, OSError):
            while self._pipe.poll():
                self._take(*self._pipe.recv())
        for number, status in self._ended():
            self._note(number, status)
        for number, (until, _) in list(self._stopped.items()):
            if time.monotonic() >= until:
                del self._stopped[number]
                os.kill(number, signal.SIGCONT)
        return self._status

    def _take(self, name, place, office):
        if office is None:
            for number, own in self._names.items():
                if own == name:
                    os.kill(number, signal.SIGKILL)
            return

        def run(desk):
            if isinstance(place, WorkerPlace):
                return _train(self.orders, place, desk, self.links)
            return _serve_shard(self.orders, name, place, desk)

        self._fork(name, lambda: _act_out(name, _connect(office), run))

    def _ended(self):
        while self._names:
            number, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if not number:
                return
            yield number, status

    def _note(self, number, status):
        name = self._names[number]
        if os.WIFSTOPPED(status):
            moment = next(each for each in self.moments if each.who == name)
            self._stopped[number] = time.monotonic() + (moment.stop_seconds or 0.0), moment
            self.acted.append(time.monotonic())
            if moment.counts_as_gone:
                self._tell(name)
            return
        del self._names[number]
        self._stopped.pop(number, None)
        if number == self._head:
            self._status = os.waitstatus_to_exitcode(status)
        if os.WIFSIGNALED(status):
            self.acted.append(time.monotonic())
        if status and number != self._head:
            self._tell(name)

    def _tell(self, name):
        with contextlib.suppress(OSError):
            self._pipe.send(name)

    def head_output(self):
        return ""

    def close(self):
        for number in list(self._names):
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            self._names.pop(number)
        self._pipe.close()


def _act_out(name, desk, task):
    """Do it, and tell the head how it ended."""
    try:
        answer = task(desk)
    except StashError as error:
        answer = error
    with contextlib.suppress(Exception):
        desk.tell(name, False, answer)
    return 0
