"""Decisions judged on an emulated fleet, where every candidate can be run and the best is known.

    python -m bench.plan.fleet --only "even on"    candidates whose name contains this (root)
    python -m bench.plan.fleet                     all that are not kept yet (root; three quarters of an hour)

Each model is profiled on one cheap type, all candidates are forecast from that, and then each is run: untouched but
for a stopwatch at the optimizer, on data that are not in memory. Everything is kept as soon as it is known, a line a
candidate in ``data/fleet.csv``, and not run again. ``bench.plan.fleet_judge`` decides and judges.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np

from bench import recorded
from bench.machine import ROOT, arguments
from bench.plan.emulated import CANDIDATES, Candidate, FleetModel, case_of, machines, profiled
from bench.table import progress
from bench.truth.jobs import cluster, files, profile
from bench.truth.stopwatch import LEAD_IN, moments
from bench.workloads import drop_cache
from stash.core.artefact import load, save
from stash.core.errors import StashError
from stash.core.intervals import Interval
from stash.core.records.profile import Profile
from stash.core.redaction import redacted
from stash.predict.changes import Alteration
from stash.predict.forecast import Forecast, StallDraws
from stash.predict.forecasting import base_of, forecast_of, stall_draws
from stash.predict.passes import Base

DATA = Path(__file__).parent / "data"
BUDGET, SECONDS = 120.0, 16.0
"""Of a profile; of steps of a run."""
PRECISION = 1.0
"""Per cent of the step, of profiles."""
MIN_STEPS = 12
"""After the lead-in, of a truth."""
ENDS = ("", "_low", "_high")
FIELDS = (
    *("model", "instance", "nodes", "as_of", "steps"),
    *(f"{whose}_step{end}" for whose in ("measured", "forecast") for end in ENDS),
)
Row = Mapping[str, str]


def rows() -> dict[str, Row]:
    """Lines that are kept, by their candidate's name."""
    found = recorded.rows(DATA / "fleet.csv")
    return {f"{row['model']} on {row['nodes']} x {row['instance']}": row for row in found}


def profile_path(model: FleetModel) -> Path:
    return DATA / f"fleet-{model.name}.stash.json"


def base_for(seen: Profile) -> Base:
    """What the product's forecasts start with; its clusters are the fleet's types, by name."""
    known = machines(base_of(seen).target)
    return base_of(seen, clusters=lambda name: known[name])


def drawn(base: Base, candidate: Candidate) -> StallDraws:
    """The product's forecast of the candidate as draws."""
    return stall_draws(base, Alteration(cluster=candidate.type.name, nodes=candidate.nodes))


def start_of(model: FleetModel) -> Base:
    """What forecasts of ``model`` start with, profiled now if it was not yet; raises RuntimeError if that fails."""
    path = profile_path(model)
    if not path.exists():
        case = case_of(profiled(model))
        with tempfile.TemporaryDirectory() as folder, cluster(case) as (bed, _):
            save(redacted(profile(case, Path(folder), bed, BUDGET, PRECISION)), path)
    return base_for(load(path))


def run(candidate: Candidate, base: Base) -> Row:
    """The candidate's line: forecast first, then run, then kept; raises RuntimeError if it could not be run."""
    forecast = forecast_of(base, drawn(base, candidate))
    line = line_of(candidate, forecast, steps_of(candidate, SECONDS, forecast.breakdown.step_seconds))
    keep(line)
    return line


def steps_of(candidate: Candidate, seconds: float, expected: float) -> np.ndarray:
    """Seconds of each step of the untouched job, for about so long; no sample is read twice."""
    case = case_of(candidate)
    whole = case.files // candidate.samples_per_step
    count = min(whole, LEAD_IN + max(MIN_STEPS, round(seconds / expected)))
    data = files(case)
    with cluster(case) as (bed, _):
        if data is not None:
            drop_cache(data)
        return np.diff(moments(case, bed, count, data, pinned=False))[LEAD_IN:]


def line_of(candidate: Candidate, forecast: Forecast, steps: np.ndarray) -> Row:
    """Of a forecast and of steps; what the forecast does not know stays empty."""

    def ends(name: str, found: Interval | None) -> dict[str, str]:
        values = (None, None, None) if found is None else (found.value, found.low, found.high)
        return {name + end: "" if value is None else f"{value:.6g}" for end, value in zip(ENDS, values, strict=True)}

    half, mean = 1.96 * float(steps.std(ddof=1)) / len(steps) ** 0.5, float(steps.mean())
    return {
        **{"model": candidate.model.name, "instance": candidate.type.name, "nodes": str(candidate.nodes)},
        **{"as_of": date.today().isoformat(), "steps": str(len(steps))},
        **ends("measured_step", Interval(value=mean, low=mean - half, high=mean + half)),
        **ends("forecast_step", forecast.step),
    }


def keep(line: Row) -> None:
    """The table with this line at its end."""
    lines = [*rows().values(), line]
    recorded.write(DATA / "fleet.csv", FIELDS, [[each[name] for name in FIELDS] for each in lines])


def missing(words: str) -> list[Candidate]:
    """What is to be run: candidates that no line is kept of."""
    kept = rows()
    return [each for each in CANDIDATES if words in each.name and each.name not in kept]


def run_all(wanted: list[Candidate]) -> list[str]:
    """Run what is wanted; the sentences about those that could not be run."""
    failed = []
    for each in wanted:
        try:
            line = run(each, start_of(each.model))
        except (RuntimeError, StashError, OSError, subprocess.SubprocessError) as error:
            failed.append(f"{each.name} could not be run: {str(error).splitlines()[0]}")
            progress(each.name, error)
            continue
        progress(each.name, f"measured {line['measured_step']}, forecast {line['forecast_step']}")
    return failed


def main() -> int:
    failed = run_all(missing(arguments(__doc__, only=("", "candidates whose name contains this")).only))
    print(f"kept in {(DATA / 'fleet.csv').relative_to(ROOT)}; python -m bench.plan says what the choices were worth")
    print("\n".join(failed), end="\n" if failed else "")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
