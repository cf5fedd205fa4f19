"""How right the queue is about fleets that really trained: fitted on three, asked about all the others.

Every run of ``data/truth_speeds.csv`` held six fleets: its workers left one after the other, on emulated hosts.
Compute was emulated, exchanges were real; what played them is archived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from bench import recorded
from bench.machine import arguments
from bench.table import median_90, table
from stash.spot.fleet_records import FleetPool
from stash.spot.model.queueing import fleet_seconds, network_of_pool

DATA = Path(__file__).parent / "data" / "truth_speeds.csv"
KINDS = ("fast", "slow")
FITTED = (
    ("even links", "fast=1"),
    ("slow workers' links", "fast=1+slow=1"),
    ("large updates", "fast=3+slow=3"),
)
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
    Configuration("even links", 2, 100 * MBIT, 100 * MBIT, {"fast": 0.4, "slow": 0.8}),
    Configuration("slow workers' links", 2, 200 * MBIT, 50 * MBIT, {"fast": 0.3, "slow": 0.9}),
    Configuration("large updates", 4, 100 * MBIT, 100 * MBIT, {"fast": 0.5, "slow": 1.5}),
    Configuration("one server core", 1, 100 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, 0.16),
    Configuration(
        "two server cores", 1, 100 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, 0.16, 2
    ),
    Configuration("two servers", 4, 50 * MBIT, 100 * MBIT, {"fast": 0.5, "slow": 1.0}, servers=2),
    Configuration(
        "two busy servers", 2, 50 * MBIT, 100 * MBIT, {"fast": 0.3, "slow": 0.6}, 0.2, 1, 2
    ),
)


@dataclass(frozen=True)
class Coefficients:
    """What three fleets tell: how much of a link TCP uses, what an exchange costs besides, who waits."""

    efficiency: float
    overhead: float
    randomness: float


def queue_rate(configuration: Configuration, counts: Sequence[int], known: Coefficients) -> float:
    """Updates per second of so many workers of each kind."""
    rate = configuration.server_rate * known.efficiency
    own = configuration.size / (configuration.worker_rate * known.efficiency)
    link = max(own, configuration.size / configuration.servers / rate)
    besides = 2 * link + configuration.apply + known.overhead
    single = {kind: configuration.pace[kind] + besides for kind in KINDS}
    network = replace(
        network_of_pool(_pool(configuration, rate, single)), randomness=known.randomness
    )
    return float((np.array(counts) / fleet_seconds(np.array(counts), network)).sum())


def _pool(configuration: Configuration, rate: float, single: Mapping[str, float]) -> FleetPool:
    """What a pool's file would say: servers of ``rate`` bytes per second, and ``single`` seconds of an iteration."""
    types = [
        {
            "name": kind,
            "batch": 1,
            "samples_per_second": 1 / single[kind],
            "quota": 6,
            "dollars_per_hour": 0,
        }
        for kind in KINDS
    ]
    return FleetPool.model_validate(
        {
            "as_of": "2026-11-22",
            "source": "the testbed",
            "types": types,
            "exchange_bytes": configuration.size,
            "worker_bytes_per_second": configuration.worker_rate,
            "pcie_bytes_per_second": 1e12,
            "loss": {"gamma1": 1, "gamma2": 0, "gamma3": 1, "gamma5": 0},
            "server": {
                "count": configuration.servers,
                "bytes_per_second": rate,
                "apply_seconds": configuration.apply_seconds,
                "cores": configuration.cores,
            },
        }
    )


Measured = tuple[Configuration, str, float]
"""Configuration, workers as they are written, updates per second."""


def list_fleets() -> list[Measured]:
    """Every fleet that trained."""
    named = {each.name: each for each in CONFIGURATIONS}
    return [
        (named[row["configuration"]], row["workers"], float(row["updates_per_second"]))
        for row in recorded.rows(DATA)
    ]


def main() -> None:
    """Fit on three fleets, predict the others, print how wrong that was."""
    arguments(__doc__)
    fleets = list_fleets()
    fitted = [each for each in fleets if (each[0].name, each[1]) in FITTED]
    unseen = [each for each in fleets if each not in fitted]
    known = _fit(fitted)
    print(f"Fitted on {len(fitted)} fleets: {known}; {len(unseen)} unseen fleets.\n")
    groups = {
        each.name: [fleet for fleet in unseen if fleet[0] == each] for each in CONFIGURATIONS
    } | {"all": unseen}
    lines = [
        [
            name,
            len(group),
            median_90(queue_rate(c, _counts(w), known) / speed - 1 for c, w, speed in group),
        ]
        for name, group in groups.items()
    ]
    print(table(("configuration", "unseen fleets", "median, p90"), lines))


def _fit(fitted: Sequence[Measured]) -> Coefficients:
    def off(x: np.ndarray) -> list[float]:
        return [
            np.log(queue_rate(c, _counts(w), Coefficients(*x)) / speed) for c, w, speed in fitted
        ]

    found = least_squares(off, [0.95, 0.005, 0.3], bounds=([0.5, 0.0, 0.0], [1.05, 0.1, 1.0])).x
    return Coefficients(*map(float, found))


def _counts(workers: str) -> list[int]:
    named = dict(part.split("=") for part in workers.split("+"))
    return [int(named.get(kind, 0)) for kind in KINDS]


if __name__ == "__main__":
    main()
