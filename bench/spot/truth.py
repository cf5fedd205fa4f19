"""How right the queue is about fleets that really trained: fitted on three, asked about all the others.

``measure`` plays configurations on the testbed, each with six workers that leave one after the other, so that every
run holds six fleets; what is measured is appended to ``data/truth_speeds.csv``, and what is there is not measured
again. ``report`` (the default) fits and prints the table. Compute is emulated, exchanges are real.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from bench import recorded
from bench.table import median_90, table
from stash.lab.testbed.revoke import Revocation, moments
from stash.spot.emulate.backends import TrainingBackend
from stash.spot.emulate.build_rehearsal import EmulatedFleet
from stash.spot.emulate.run_rehearsal import Rehearsal
from stash.spot.fleet_records import FleetPool
from stash.spot.model.queueing import USUAL_RANDOMNESS, fleet_seconds, of_pool
from stash.spot.model.stretches import outages, stretches
from stash.spot.run_records import SpotStretch, SpotUpdates
from stash.spot.train.run_orders import TrainingOrders, WorkerPlace

DATA = Path(__file__).parent / "data" / "truth_speeds.csv"
JOBS = Path(__file__).parent / "truth_jobs.py"
HEAD = ("measured", "configuration", "workers", "updates_per_second", "updates", "load")
STRETCH_SECONDS, NOTICE_SECONDS = 9.0, 2.0
KINDS = ("fast", "slow")
FITTED = (("even links", "fast=1"), ("slow workers' links", "fast=1+slow=1"), ("large updates", "fast=3+slow=3"))
"""As the how-to says to choose: one alone, a small one, and one that fills the server."""


@dataclass(frozen=True)
class Configuration:
    """What is the same for all fleets of a run. Bytes, bytes per second, seconds."""

    name: str
    megabytes: int
    server_rate: float
    worker_rate: float
    pace: dict[str, float]
    """Of an iteration without its exchange."""
    leaving: str
    """Which kind goes first, second, …: f and s; the last one stays."""
    apply_seconds: float = 0.0
    """On one core of one server, for all parameters."""
    cores: int = 1
    servers: int = 1

    @property
    def size(self) -> float:
        return self.megabytes * 1e6

    @property
    def apply(self) -> float:
        """Of one server: its share of the parameters, on its cores."""
        return self.apply_seconds / self.servers / self.cores


MBIT = 1e6 / 8
CONFIGURATIONS = (
    Configuration("even links", 2, 100 * MBIT, 100 * MBIT, {"fast": 0.4, "slow": 0.8}, "sfsfs"),
    Configuration("slow workers' links", 2, 200 * MBIT, 50 * MBIT, {"fast": 0.3, "slow": 0.9}, "fsfsf"),
    Configuration("large updates", 4, 100 * MBIT, 100 * MBIT, {"fast": 0.5, "slow": 1.5}, "fssff"),
    Configuration("one server core", 1, 100 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, "sffss", 0.16),
    Configuration("two server cores", 1, 100 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, "ffsss", 0.16, 2),
    Configuration("two servers", 4, 50 * MBIT, 100 * MBIT, {"fast": 0.5, "slow": 1.0}, "sfsfs", servers=2),
    Configuration("two busy servers", 2, 50 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, "fsfss", 0.2, 1, 2),
)


def measure(wanted: Sequence[str], seconds: float) -> None:
    """Play every configuration that the data lack."""
    known = {row["configuration"] for row in recorded.rows(DATA)}
    for configuration in CONFIGURATIONS:
        if configuration.name in known or (wanted and configuration.name not in wanted):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = play(configuration, Path(folder), seconds)
        today, load = date.today().isoformat(), f"{os.getloadavg()[0]:.1f}"
        kept = [[row[name] for name in HEAD] for row in recorded.rows(DATA)]
        new = [
            (today, configuration.name, workers, f"{speed:.4f}", updates, load) for workers, speed, updates in found
        ]
        recorded.write(DATA, HEAD, [*kept, *new])
        print(configuration.name, found, flush=True)


def play(configuration: Configuration, folder: Path, seconds: float) -> list[tuple[str, float, int]]:
    """One run: (workers, updates per second, updates) of each of its fleets."""
    (folder / "checkpoints").mkdir()
    kinds = [*("fast" if letter == "f" else "slow" for letter in configuration.leaving), "fast"]
    if kinds.count("fast") > 3:
        kinds[-1] = "slow"
    places = tuple(WorkerPlace(f"worker{n}", kind, 8, configuration.pace[kind]) for n, kind in enumerate(kinds, 1))
    orders = TrainingOrders(
        job=f"{JOBS}:mb{configuration.megabytes}", checkpoints=str(folder / "checkpoints"),
        servers=tuple(f"server{n + 1}" for n in range(configuration.servers)), workers=places,
        seconds=len(kinds) * seconds + 8, checkpoint_seconds=1e6, apply_seconds=configuration.apply, replace=False,
        at_once=math.ceil(configuration.server_rate / configuration.worker_rate),
    )  # fmt: skip
    fleet = EmulatedFleet(1.0, configuration.worker_rate, configuration.server_rate, configuration.apply, {})
    leave = [Revocation(f"worker{n}", 8 + n * seconds, NOTICE_SECONDS) for n in range(1, len(kinds))]
    backend = TrainingBackend(orders, folder, fleet, 0)
    played = Rehearsal(orders, backend, folder, moments(leave), lambda event: None)
    account = played.run()
    assert account.books is not None, account.reason
    assert account.books.wrong is None, account.books.wrong
    cut = stretches(account.updates, played.types, outages(account.events, 1e9), lambda workers: None)
    return [
        ("+".join(f"{kind}={n}" for kind, n in each.workers.items()), speed_of(account.updates, each), each.updates)
        for each in cut
        if each.stop - each.start > seconds / 2
    ]


def speed_of(updates: SpotUpdates, stretch: SpotStretch) -> float:
    """Σ 1 / mean iteration of each worker: exact to the iteration, where counting in a few seconds is not."""
    own: dict[str, list[float]] = {}
    for at, worker in zip(updates.seconds, updates.worker, strict=True):
        if stretch.start <= at <= stretch.stop:
            own.setdefault(worker, []).append(at)
    return sum((len(times) - 1) / (times[-1] - times[0]) for times in own.values() if len(times) > 1)


@dataclass(frozen=True)
class Coefficients:
    """What three fleets tell: how much of a link TCP uses, what an exchange costs besides, who waits."""

    efficiency: float
    overhead: float
    randomness: float


def by_queue(
    configuration: Configuration, counts: Sequence[int], known: Coefficients, together: bool = True
) -> float:
    """Updates per second: servers are asked ``together``, as of any pool; or, to compare, one after another."""
    copies = 1 if together else configuration.servers
    rate = configuration.server_rate * known.efficiency
    own = configuration.size / (configuration.worker_rate * known.efficiency)
    link = max(own, configuration.size / configuration.servers / rate * copies)
    besides = 2 * link + copies * configuration.apply + known.overhead
    single = {kind: configuration.pace[kind] + besides for kind in KINDS}
    network = replace(of_pool(_pool(configuration, rate, single)), randomness=known.randomness)
    if not together:
        network = replace(
            network, think=network.think - (copies - 1) * network.service, copies=np.full(3, float(copies))
        )
    return float((np.array(counts) / fleet_seconds(np.array(counts), network)).sum())


def _pool(configuration: Configuration, rate: float, single: Mapping[str, float]) -> FleetPool:
    """What a pool's file would say: servers of ``rate`` bytes per second, and ``single`` seconds of an iteration."""
    types = [
        {"name": kind, "batch": 1, "samples_per_second": 1 / single[kind], "quota": 6, "dollars_per_hour": 0}
        for kind in KINDS
    ]
    return FleetPool.model_validate({
        "as_of": "2026-11-22", "source": "the testbed", "types": types,
        "exchange_bytes": configuration.size, "worker_bytes_per_second": configuration.worker_rate,
        "pcie_bytes_per_second": 1e12, "loss": {"gamma1": 1, "gamma2": 0, "gamma3": 1, "gamma5": 0},
        "server": {"count": configuration.servers, "bytes_per_second": rate,
                   "apply_seconds": configuration.apply_seconds, "cores": configuration.cores},
    })  # fmt: skip


Measured = tuple[Configuration, str, float]
"""Configuration, workers as they are written, updates per second."""
SpeedOf = Callable[[Configuration, Sequence[int]], float]


def _divided() -> tuple[list[Measured], list[Measured]]:
    """The fleets that are fitted, and all others."""
    named = {each.name: each for each in CONFIGURATIONS}
    found = [
        (named[row["configuration"]], row["workers"], float(row["updates_per_second"])) for row in recorded.rows(DATA)
    ]
    fitted = [each for each in found if (each[0].name, each[1]) in FITTED]
    return fitted, [each for each in found if each not in fitted]


def coefficients() -> Coefficients:
    """Of the queue, as the three fleets tell them."""
    return _fit(_divided()[0])


def report() -> None:
    """Fit on three fleets, predict the others, print how wrong that was."""
    named = {each.name: each for each in CONFIGURATIONS}
    fitted, unseen = _divided()
    known = _fit(fitted)
    print(f"Fitted on {len(fitted)} fleets: {known}; {len(unseen)} unseen fleets.\n")
    models: dict[str, SpeedOf] = {
        "queue": lambda c, n: by_queue(c, n, known),
        "queue, one server after another": lambda c, n: by_queue(c, n, known, together=False),
        "queue of an untimed pool": lambda c, n: by_queue(c, n, replace(known, randomness=USUAL_RANDOMNESS)),
        "queue, arrivals at random": lambda c, n: by_queue(c, n, replace(known, randomness=1.0)),
    }

    def wrong(model: SpeedOf, group: Sequence[Measured]) -> str:
        return median_90(model(c, _counts(w)) / speed - 1 for c, w, speed in group)

    groups = [(name, [each for each in unseen if each[0].name == name]) for name in named]
    lines = [
        [name, len(group), *(wrong(model, group) for model in models.values())]
        for name, group in [*groups, ("all", unseen)]
        if group
    ]
    print(table(["configuration", "unseen fleets", *(f"{name}: median, p90" for name in models)], lines))


def _fit(fitted: Sequence[Measured]) -> Coefficients:
    def off(x: np.ndarray) -> list[float]:
        return [np.log(by_queue(c, _counts(w), Coefficients(*x)) / speed) for c, w, speed in fitted]

    found = least_squares(off, [0.95, 0.005, 0.3], bounds=([0.5, 0.0, 0.0], [1.05, 0.1, 1.0])).x
    return Coefficients(*map(float, found))


def _counts(workers: str) -> list[int]:
    named = dict(part.split("=") for part in workers.split("+"))
    return [int(named.get(kind, 0)) for kind in KINDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="report", choices=("measure", "report"))
    parser.add_argument("--only", nargs="*", default=(), metavar="CONFIGURATION")
    parser.add_argument("--seconds", type=float, default=STRETCH_SECONDS, help="of each fleet")
    options = parser.parse_args()
    if options.what == "measure":
        measure(options.only, options.seconds)
    report()


if __name__ == "__main__":
    main()
