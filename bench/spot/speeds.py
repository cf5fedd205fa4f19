"""The queue of fleets against published runs: fitted to single workers and three fleets, asked about all others.

The runs are CM-DARE's (Li et al., ICDCS 2020; cake-lab/CM-DARE at 263b7f1, Apache-2.0): asynchronous training with
TensorFlow on Google Cloud in 2019, medians of steps per second of data/processed_data/speed_and_cluster_size without
each run's first fifth. The randomness is that of a fit to every run with so many servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench import recorded
from bench.machine import arguments
from bench.table import median_90, show
from stash.spot.fleet_records import FleetModel, FleetRun
from stash.spot.model.fitting import fit_fleets, predict_fleet
from stash.spot.spot_files import workers_of

DATA = Path(__file__).parent / "data" / "cmdare_speeds.csv"
FITTED = (2, 4, 8)
"""P100 of the three fleets, with one server."""


def runs() -> dict[str, list[FleetRun]]:
    """All published runs by the model that was trained."""
    found: dict[str, list[FleetRun]] = {}
    for row in sorted(recorded.rows(DATA), key=lambda row: row["model"]):
        workers = workers_of(row["workers"], "workers", "+")
        speed = float(row["updates_per_second"])
        run = FleetRun(servers=int(row["servers"]), workers=workers, updates_per_second=speed)
        found.setdefault(row["model"], []).append(run)
    return found


def known(run: FleetRun) -> bool:
    """Whether a run is among those that are fitted."""
    return run.size == 1 or (run.servers == 1 and run.workers.get("p100") in FITTED)


def errors(model: FleetModel, unseen: list[FleetRun]) -> np.ndarray:
    """Relative errors of what is predicted."""
    predicted = [
        predict_fleet(model, run.servers, run.workers).updates_per_second for run in unseen
    ]
    return np.abs(np.array(predicted) / [run.updates_per_second for run in unseen] - 1)


def lines() -> Iterator[list[object]]:
    """A line a model and number of servers, and one of all models."""
    pooled: dict[int, list[float]] = {}
    for name, every in runs().items():
        model = fit_fleets([run for run in every if known(run)], name)
        for servers in (1, 2):
            unseen = [run for run in every if not known(run) and run.servers == servers]
            wrong = errors(model, unseen)
            pooled.setdefault(servers, []).extend(wrong)
            inside = sum(_inside(model, run) for run in unseen)
            alike = fit_fleets(
                [run for run in every if run.servers == servers or run.size == 1], name
            )
            yield [
                name,
                servers,
                len(unseen),
                median_90(wrong),
                inside,
                f"{alike.queue.randomness:.2f}",
            ]
    for servers, wrong in pooled.items():
        yield ["all", servers, len(wrong), median_90(wrong), None, None]


def _inside(model: FleetModel, run: FleetRun) -> bool:
    found = predict_fleet(model, run.servers, run.workers)
    return (
        found.low is not None
        and found.high is not None
        and found.low <= run.updates_per_second <= found.high
    )


if __name__ == "__main__":
    arguments(__doc__)
    show(
        (
            "trained",
            "servers",
            "unseen fleets",
            "median, p90",
            "in the 95 % interval",
            "randomness",
        ),
        lines(),
    )
