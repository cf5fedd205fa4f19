"""Running the emulated fleet: profiles to forecast from, forecasts, and then every candidate for real; needs root.

The truth of a candidate is what its steps take when nobody measures: the job untouched, but for a stopwatch at the
optimizer, on data that are not in memory. Everything is kept as soon as it is known, the profiles beside
``fleet.csv`` and a line a candidate in it, and nothing that is kept is run again. Judges nothing.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import numpy as np

from bench.common import drop_cache
from bench.plan.emulated import Candidate, FleetModel, case_of, machines, profiled
from bench.truth.jobs import cluster, files, profile
from bench.truth.stopwatch import LEAD_IN, moments
from stash.core.artefact import load, save
from stash.core.intervals import Interval
from stash.core.ladder import STALLS
from stash.core.records.profile import Profile
from stash.core.redaction import redacted
from stash.predict.changes import Alteration
from stash.predict.forecast import Forecast, StallDraws
from stash.predict.forecasting import base_of, forecast_of, stall_draws
from stash.predict.passes import Base

DATA = Path(__file__).parent / "data"
TABLE = DATA / "fleet.csv"
PRECISION = 1.0
"""Per cent of the step, of profiles."""
MIN_STEPS = 12
"""After the lead-in, of a truth."""
ENDS = ("", "_low", "_high")
FIELDS = (
    *("model", "instance", "nodes", "as_of", "steps"),
    *(f"{whose}_step{end}" for whose in ("measured", "forecast") for end in ENDS),
    *(f"forecast_{stall}" for stall in STALLS),
)
Row = Mapping[str, str]


def rows() -> dict[str, Row]:
    """Lines that are kept, by their candidate's name."""
    if not TABLE.exists():
        return {}
    with TABLE.open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    return {f"{row['model']} on {row['nodes']} x {row['instance']}": row for row in found}


def profile_path(model: FleetModel) -> Path:
    return DATA / f"fleet-{model.name}.stash.json"


# Forecasting ------------------------------------------------------------------------------------------------------


def base_for(seen: Profile) -> Base:
    """What the product's forecasts start with; its clusters are the fleet's types, by name."""
    known = machines(base_of(seen).target)
    return base_of(seen, clusters=lambda name: known[name])


def drawn(base: Base, candidate: Candidate) -> StallDraws:
    """The product's forecast of the candidate as draws."""
    return stall_draws(base, Alteration(cluster=candidate.type.name, nodes=candidate.nodes))


def start_of(model: FleetModel, budget: float) -> Base:
    """What forecasts of ``model`` start with, profiled now if it was not yet; raises RuntimeError if that fails."""
    path = profile_path(model)
    if not path.exists():
        case = case_of(profiled(model))
        with tempfile.TemporaryDirectory() as folder, cluster(case) as (bed, _):
            save(redacted(profile(case, Path(folder), bed, budget, PRECISION)), path)
    return base_for(load(path))


# Running ----------------------------------------------------------------------------------------------------------


def run(candidate: Candidate, base: Base, seconds: float) -> Row:
    """The candidate's line: forecast first, then run, then kept; raises RuntimeError if it could not be run."""
    said = forecast_of(base, drawn(base, candidate))
    line = line_of(candidate, said, steps_of(candidate, seconds, said.breakdown.step_seconds))
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


def line_of(candidate: Candidate, said: Forecast, steps: np.ndarray) -> Row:
    """Of a forecast and of steps; what the forecast does not know stays empty."""
    half = 1.96 * float(steps.std(ddof=1)) / len(steps) ** 0.5
    mean = float(steps.mean())
    line = {
        **{"model": candidate.model.name, "instance": candidate.type.name, "nodes": str(candidate.nodes)},
        **{"as_of": date.today().isoformat(), "steps": str(len(steps))},
        **_ends("measured_step", Interval(value=mean, low=mean - half, high=mean + half)),
        **_ends("forecast_step", said.step),
    }
    for stall in STALLS:
        found = said.breakdown.stall(stall)
        line[f"forecast_{stall}"] = "" if found is None else f"{found.seconds:.6g}"
    return line


def _ends(name: str, found: Interval | None) -> dict[str, str]:
    values = (None, None, None) if found is None else (found.value, found.low, found.high)
    return {name + end: "" if value is None else f"{value:.6g}" for end, value in zip(ENDS, values, strict=True)}


def keep(line: Row) -> None:
    """The table with this line at its end; whole or not at all, as a run may be interrupted."""
    kept = [*rows().values(), line]
    part = TABLE.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    part.replace(TABLE)
