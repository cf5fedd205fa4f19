"""Ray, and nothing else: servers, workers and the coordinator as actors on machines that come and go.

The only module that imports Ray, and only when a fleet is made. An actor waits for the machine it is meant for: each
machine has a resource of its own name. What the actors do is in ``server``, ``worker`` and ``coordinator``.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from stash.core.errors import JobError, StashError, UserError, one_line
from stash.core.imports import require_package
from stash.core.membership import TOKEN, address_towards
from stash.spot.train.coordinator import Coordinator
from stash.spot.train.elastic_job import load_job
from stash.spot.train.ledger import Range
from stash.spot.train.run_orders import Address, TrainingOrders, WorkerPlace
from stash.spot.train.server import ParameterShard, RunKeys, ShardServer, save_model
from stash.spot.train.worker import Trainer, devices_here, work

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # else workers stand back behind whatever else runs
    # A host that vanished is noticed after three unanswered seconds.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""The environment of everything that is Ray's: nothing leaves the machine, nothing is started ahead of need."""
ON_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Of a Ray that is on this machine alone: else it takes the outward address, and listens on all of them."""
STORE_BYTES = 80_000_000
"""Of the object store, which carries no tensors: the least that Ray accepts."""
_SHARE = 0.001
_ANSWER_SECONDS = 120.0
_SERVERS_SECONDS = 600.0
"""That an answer may take: where everything starts at once; of servers that write a large checkpoint."""
_SIGN_SECONDS = 2.0
_SILENT_SECONDS = 20.0
"""Between two questions whether an actor is there, and that it may take to answer. Ray takes 5 s more to end it."""
_TRIES = 3
_CALLS = 512
"""That the coordinator holds at once: every worker may wait for a server."""
_MAX_WORKERS = 2
_MORE_WORKERS = 8
"""Workers that a server lets connect at once, for each of the plan, and more: successors come early."""


def run_secret() -> bytes:
    """The secret by which servers and workers know each other; raises UserError where there is none."""
    found = os.environ.get(TOKEN)
    if not found:
        raise UserError(
            f"${TOKEN} is not set, by which servers and workers know each other: `stash spot run` does so"
        )
    return found.encode()


def require_ray() -> Any:
    """Ray; raises UserError if it is not installed."""
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    return require_package("ray", "asynchronous training")


class ServerActor:
    """A shard and those who ask it."""

    def __init__(self, orders: TrainingOrders, number: int, lease_key: bytes) -> None:
        self._orders = orders
        self._number = number
        self._lease_key = lease_key

    def arrive(self) -> tuple[Address, int, tuple[str, ...]]:
        """Return its address, its version, and what was wrong with newer checkpoints; raises UserError."""
        orders = self._orders
        self._shard = ParameterShard(load_job(orders.job), self._number, len(orders.servers))
        found = self._shard.resume(Path(orders.checkpoints))
        keys = RunKeys(run_secret(), self._lease_key)
        most = _MAX_WORKERS * len(orders.workers) + _MORE_WORKERS
        self._server = ShardServer(
            self._shard, address_towards(orders.interface), keys, orders.at_once, most
        )
        return self._server.address, self._shard.version, () if found is None else found.skipped

    def applied_ranges(self) -> tuple[Range, ...]:
        return self._shard.applied.ranges

    def save(self) -> str:
        return str(self._shard.save(Path(self._orders.checkpoints)))

    def pack(self) -> Any:
        """An array, which Ray passes on without a copy."""
        return self._shard.pack().numpy()

    def answer(self) -> None:
        """Return: it does not hang."""

    def work(self) -> None:
        """Returns never; raises JobError if an update fails. Whoever waits for it learns of the actor's end."""
        self._shard.failure.result()


class WorkerActor:
    """A worker, which calls on the coordinator through Ray."""

    def __init__(self, orders: TrainingOrders, place: WorkerPlace, coordinator: Any) -> None:
        self._orders = orders
        self._place = place
        self._coordinator = coordinator

    def arrive(self) -> None:
        """Make the job's parts and join; raises UserError."""
        place = self._place
        job = load_job(self._orders.job)
        self._trainer = Trainer(
            job, len(self._orders.servers), place.samples, devices_here(place.gpus)
        )
        require_ray().get(self._coordinator.join.remote(self._place.name, self._place.samples))

    def answer(self) -> None:
        """Return: it does not hang."""

    def work(self) -> int:
        coordinator: Any = _RemoteCoordinator(self._coordinator)
        try:
            return work(
                self._place.name,
                self._trainer,
                coordinator,
                run_secret(),
            )
        finally:
            self._trainer.feed.close()


class _RemoteCoordinator:
    """The coordinator's actor as workers know it."""

    def __init__(self, actor: Any) -> None:
        self._ray = require_ray()
        self._actor = actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """One of ``Coordinator``'s, which returns when the coordinator answers."""
        return lambda *words: self._ray.get(getattr(self._actor, method).remote(*words))


class ActorFleet:
    """The actors of one training, and who of them ended."""

    def __init__(self, orders: TrainingOrders) -> None:
        self._ray = require_ray()
        self._orders = orders
        # A Ray of its own, even where another one runs.
        own = {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
            "num_cpus": 1,
        }
        there = {"address": orders.address} if orders.address else own
        self._start_ray(
            **there, _node_ip_address=orders.interface, log_to_driver=False, logging_level="error"
        )
        batch = max(each.samples for each in orders.workers)
        coordinator = self._ray.remote(num_cpus=0, max_concurrency=_CALLS)(Coordinator)
        if orders.address:
            coordinator = coordinator.options(resources={"head": _SHARE})
        self._lease_key = secrets.token_bytes(32)
        self.coordinator = coordinator.remote(len(orders.servers), batch, self._lease_key)
        self._actors: dict[str, Any] = {}
        self._starting: dict[Any, str] = {}
        self._running: dict[Any, str] = {}
        self._saving: dict[str, Any] = {}
        self._signs: dict[str, tuple[Any, float]] = {}
        """Of who works: the question that is not answered yet, and for how many seconds."""
        self._looked = time.monotonic()
        self._hung: list[str] = []

    def _start_ray(self, **settings: Any) -> None:
        """Ray gives up after 30 s, which a busy machine may take; raises JobError."""
        for left in reversed(range(_TRIES)):
            try:
                self._ray.init(**settings)
                return
            except Exception as error:  # of no class of its own
                self._ray.shutdown()
                if not left:
                    raise JobError(
                        f"Ray did not start in {_TRIES} tries: {one_line(error)}"
                    ) from error

    def ask(self, method: str, *words: Any) -> Any:
        """The coordinator's answer; raises JobError if there is none."""
        try:
            return self._ray.get(
                getattr(self.coordinator, method).remote(*words), timeout=_ANSWER_SECONDS
            )
        except self._ray.exceptions.GetTimeoutError:
            raise JobError(f"the coordinator has not answered for {_ANSWER_SECONDS:g} s") from None
        except self._ray.exceptions.RayError as error:
            raise self.describe_error("the coordinator", error) from error

    def start_server(self, name: str, number: int) -> None:
        """Begin a server on the machine of that name, or here; ``changes`` says when it has arrived."""
        actor = self._make_actor(ServerActor, name, 8).remote(self._orders, number, self._lease_key)
        self._actors[name] = actor
        self._starting[actor.arrive.remote()] = name

    def start_worker(self, place: WorkerPlace) -> None:
        """Begin a worker on the machine of its name, or here."""
        actor = self._make_actor(WorkerActor, place.name, 2).remote(
            self._orders, place, self.coordinator
        )
        self._actors[place.name] = actor
        self._starting[actor.arrive.remote()] = place.name

    def changes(self, seconds: float) -> list[tuple[str, bool, Any]]:
        """Within so many seconds: (name, whether it arrived, its answer; or an error if it broke)."""
        watched = [*self._starting, *self._running]
        if not watched:
            threading.Event().wait(seconds)
            return []
        ready, _ = self._ray.wait(watched, num_returns=1, timeout=seconds)
        return [self._change(future) for future in ready]

    def _change(self, future: Any) -> tuple[str, bool, Any]:
        arrived = future in self._starting
        name = self._starting.pop(future) if arrived else self._running.pop(future)
        try:
            answer = self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            return name, False, error
        except UserError as error:  # Ray raises an actor's own error as if it were of its class too
            return name, False, error
        if arrived:
            self._running[self._actors[name].work.remote()] = name
        return name, arrived, answer

    def end_hanging(self) -> list[str]:
        """Kill who has not answered for long, as if its machine had gone; who that was since the last call."""
        self._look_for_signs()
        hung = self._hung
        self._hung = []
        return hung

    def _look_for_signs(self) -> None:
        now = time.monotonic()
        # this process may have been stopped itself
        passed = min(now - self._looked, 1.0)
        self._looked = now
        working = set(self._running.values())
        for name in working - self._signs.keys():
            self._signs[name] = self._actors[name].answer.remote(), 0.0
        for name, (question, before) in list(self._signs.items()):
            silent = before + passed
            if name not in working or (
                silent > _SIGN_SECONDS and self._ray.wait([question], timeout=0)[0]
            ):
                del self._signs[name]
            elif silent > _SILENT_SECONDS:
                del self._signs[name]
                self._hung.append(name)
                self.kill(name)
            else:
                self._signs[name] = question, silent

    def _wait(self, futures: Sequence[Any], seconds: float) -> list[Any]:
        """Those that have no answer after so many seconds; who hangs meanwhile is ended, which is an answer."""
        until = time.monotonic() + seconds
        left: list[Any] = list(futures)
        while True:
            rest = max(0.0, until - time.monotonic())
            _, left = self._ray.wait(left, num_returns=len(left), timeout=min(rest, 1.0))
            if not left or rest <= 1.0:
                return left
            self._look_for_signs()

    def applied_ranges(self, names: Sequence[str]) -> list[tuple[Range, ...]] | None:
        """What each server has applied; ``None`` if one of them is just going, or does not answer."""
        return self._answers({name: self._actors[name].applied_ranges.remote() for name in names})

    def begin_saving(self, names: Sequence[str]) -> None:
        """Have all servers write checkpoints; ``has_saved`` says when they are there."""
        self._saving = {name: self._actors[name].save.remote() for name in names}

    def has_saved(self, seconds: float = 0.0) -> bool | None:
        """Whether all are written that were begun, waiting so long for them; ``None`` if a server went meanwhile.

        Raises JobError for one that cannot be written.
        """
        left = self._wait(list(self._saving.values()), seconds)
        return None if not left and self._answers(self._saving) is None else not left

    def save_model(self, names: Sequence[str], path: Path) -> bool:
        """Write what all servers have to ``path``; whether none of them was gone. Raises OSError."""
        arrays = self._answers({name: self._actors[name].pack.remote() for name in names})
        if arrays is None:
            return False
        save_model(load_job(self._orders.job), [torch.tensor(each) for each in arrays], path)
        return True

    def _answers(self, asked: Mapping[str, Any]) -> list[Any] | None:
        """Of actors, by name; ``None`` if one is gone, or too slow. Raises StashError for what one raised itself."""
        if self._wait(list(asked.values()), _SERVERS_SECONDS):
            return None
        found = []
        for name, future in asked.items():
            try:
                found.append(self._ray.get(future))
            except self._ray.exceptions.RayError as error:
                if self.is_gone(error):
                    return None
                raise self.describe_error(name, error) from error
        return found

    def describe_error(self, who: str, error: Exception) -> StashError:
        """What somebody's actor raised, without Ray's account of how it came here."""
        cause = getattr(error, "cause", None)
        shown = cause if isinstance(cause, BaseException) else error
        if isinstance(shown, UserError):
            return UserError(str(shown))
        text = (
            str(shown)
            if isinstance(shown, StashError)
            else f"{type(shown).__name__}: {one_line(shown)}"
        )
        return JobError(f"{who} failed: {text}")

    def is_gone(self, error: Exception) -> bool:
        """Whether it says that an actor's machine or process is no more, as against an error in what it did."""
        return isinstance(error, self._ray.exceptions.RayActorError)

    def kill(self, name: str) -> None:
        """End an actor as if its machine had gone."""
        self._ray.kill(self._actors[name])

    def close(self) -> None:
        self._ray.shutdown()

    def _make_actor(self, kind: type, name: str, calls: int) -> Any:
        made = self._ray.remote(num_cpus=0, max_concurrency=calls, max_restarts=0)(kind)
        return made.options(resources={name: _SHARE}) if self._orders.address else made
