"""Speed models of fleets against published runs: fitted to lone workers and three fleets, asked about all others.

python -m bench.spot.speeds

The runs are CM-DARE's (Li et al., ICDCS 2020; cake-lab/CM-DARE at 263b7f1, Apache-2.0): asynchronous training with
TensorFlow on Google Cloud in 2019, medians of steps per second of data/processed_data/speed_and_cluster_size without
each run's first fifth. The randomness is that of a fit to every run with so many servers.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stash.spot.model.fitting import fit
from stash.spot.model.speed import predict
from stash.spot.records.fleets import FleetModel, FleetRun, SpeedModel
from stash.spot.spot_files import workers_of

DATA = Path(__file__).parent / "data" / "cmdare_speeds.csv"
FITTED = (2, 4, 8)
"""P100 of the three fleets, with one server."""


def runs_of(model: str) -> list[FleetRun]:
    """All published runs of one model."""
    with DATA.open(encoding="utf-8") as file:
        return [
            FleetRun(
                servers=int(row["servers"]),
                workers=workers_of(row["workers"], "workers", "+"),
                updates_per_second=float(row["updates_per_second"]),
            )
            for row in csv.DictReader(file)
            if row["model"] == model
        ]


def models() -> list[str]:
    """The models that were trained."""
    with DATA.open(encoding="utf-8") as file:
        return sorted({row["model"] for row in csv.DictReader(file)})


def known(run: FleetRun) -> bool:
    """Whether a run is among those that are fitted."""
    return run.size == 1 or (run.servers == 1 and run.workers.get("p100") in FITTED)


def errors(model: FleetModel, unseen: list[FleetRun], name: SpeedModel) -> np.ndarray:
    """Relative errors of what is predicted."""
    said = [predict(model, run.servers, run.workers, name).updates_per_second for run in unseen]
    return np.abs(np.array(said) / [run.updates_per_second for run in unseen] - 1)


def lines() -> Iterator[str]:
    """The table."""
    yield (
        "| trained | servers | unseen fleets | queue: median, p90 | (8), (9): median, p90 | in the 95 % interval "
        "| randomness |"
    )
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    pooled: dict[tuple[int, SpeedModel], list[float]] = {}
    for name in models():
        runs = runs_of(name)
        model = fit([run for run in runs if known(run)], name, "", "")
        for servers in (1, 2):
            unseen = [run for run in runs if not known(run) and run.servers == servers]
            cells = []
            for which in ("queue", "paper"):
                wrong = errors(model, unseen, which)
                pooled.setdefault((servers, which), []).extend(wrong)
                cells.append(f"{np.median(wrong):.1%}, {np.quantile(wrong, 0.9):.1%}")
            inside = sum(_inside(model, run) for run in unseen)
            alike = fit([run for run in runs if run.servers == servers or run.size == 1], name, "", "")
            yield (
                f"| {name} | {servers} | {len(unseen)} | {' | '.join(cells)} | {inside} "
                f"| {alike.queue.randomness:.2f} |"
            )
    for servers in (1, 2):
        cells = [
            f"{np.median(pooled[servers, which]):.1%}, {np.quantile(pooled[servers, which], 0.9):.1%}"
            for which in ("queue", "paper")
        ]
        yield f"| all | {servers} | {len(pooled[servers, 'queue'])} | {' | '.join(cells)} | | |"


def _inside(model: FleetModel, run: FleetRun) -> bool:
    found = predict(model, run.servers, run.workers, "queue")
    return found.low is not None and found.high is not None and found.low <= run.updates_per_second <= found.high


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
