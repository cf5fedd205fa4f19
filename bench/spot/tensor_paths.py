"""Which way gradients should travel: through Ray's object store, or over connections of our own.

Workers with nothing to compute exchange 4 MB with one server over links of 100 Mbit/s on the testbed, all as fast as
they can: the link allows 3.1 updates a second, and a lone worker, who sends or receives at any time, half of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from stash.elastic.actors import ActorFleet, require_ray
from stash.elastic.grounds import TestbedGround
from stash.elastic.job import load_job
from stash.elastic.ledger import DataLease
from stash.elastic.orders import TrainingOrders, WorkerPlace, read_orders
from stash.elastic.scaling import EmulatedFleet
from stash.elastic.server import ParameterShard, ShardServer
from stash.elastic.worker import ServerLinks, Trainer

JOB = f"{Path(__file__).parent / 'truth_jobs.py'}:mb4"
BYTES, RATE, SECONDS = 4_000_000, 100e6 / 8, 8.0
AT_ONCE = {"own connections, all at once": 16, "own connections, in turn": 1}
STORE = "object store"


class _Server:
    """Parameters that travel as arguments and answers of an actor's method."""

    def __init__(self) -> None:
        self._parameters = np.zeros(BYTES // 4, np.float32)

    def update(self, gradient: np.ndarray) -> np.ndarray:
        self._parameters = self._parameters - 1e-6 * gradient
        return self._parameters

    def listen(self, at_once: int) -> tuple[str, int]:
        """Serve connections too, to so many at once; where."""
        shard = ParameterShard(load_job(JOB), 0, 1)
        return ShardServer(shard, require_ray().util.get_node_ip_address(), at_once).address


class _Worker:
    """Exchanges as often as it can."""

    def through_the_store(self, server: Any) -> float:
        ray, gradient = require_ray(), np.ones(BYTES // 4, np.float32)
        return _rate(lambda number: ray.get(server.update.remote(gradient)))

    def over_connections(self, address: tuple[str, int], own: int) -> float:
        trainer = Trainer(load_job(JOB), 1, 8)
        _, gradients = trainer.gradients(DataLease(0, 8))
        links = ServerLinks([address], trainer.tensors)
        base = own * 10**9  # no two workers have the same samples
        return _rate(lambda number: links.push(DataLease(base + 16 * number, base + 16 * number + 8), gradients))


def _rate(exchange: Any) -> float:
    for number in range(2):
        exchange(number)
    began, number = time.monotonic(), 2
    while time.monotonic() - began < SECONDS:
        exchange(number)
        number += 1
    return (number - 2) / (time.monotonic() - began)


def inside(folder: Path) -> None:
    """On the head of the emulated cluster: a row for each path, a column for each number of workers."""
    orders = read_orders(folder)
    ActorFleet(orders)
    ray = require_ray()
    server = ray.remote(num_cpus=0, resources={"server1": 0.001})(_Server).remote()
    workers = [ray.remote(num_cpus=0, resources={place.name: 0.001})(_Worker).remote() for place in orders.workers]
    print("| updates/s through | " + " | ".join(f"{n + 1} workers" for n in range(len(workers))) + " |", flush=True)
    print("| --- " * (1 + len(workers)) + "|")
    for path in (STORE, *AT_ONCE):
        address = None if path == STORE else ray.get(server.listen.remote(AT_ONCE[path]))
        found = []
        for count in range(1, len(workers) + 1):
            asked = [
                worker.through_the_store.remote(server) if address is None
                else worker.over_connections.remote(address, 10 * count + number)
                for number, worker in enumerate(workers[:count])
            ]  # fmt: skip
            found.append(sum(ray.get(asked)))
        print(f"| {path} | " + " | ".join(f"{rate:.2f}" for rate in found) + " |", flush=True)


class _Ground(TestbedGround):
    def play(self) -> str:
        """What ``inside`` printed."""
        command = (sys.executable, "-m", "bench.spot.tensor_paths", "--inside", str(self._folder))
        done = self._bed.run(self._seeing(0, command), 0, env=self._environment)
        done.wait(400)
        return done.output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside is not None:
        inside(options.inside)
        return
    places = tuple(WorkerPlace(f"worker{number}", "any", 8) for number in range(1, 4))
    with tempfile.TemporaryDirectory() as folder:
        orders = TrainingOrders(JOB, folder, ("server1",), places)
        ground = _Ground(orders, Path(folder), EmulatedFleet(1.0, RATE, RATE, 0.0, {}), 0)
        try:
            ground.start()
            print(ground.play())
        finally:
            ground.close()


if __name__ == "__main__":
    main()
