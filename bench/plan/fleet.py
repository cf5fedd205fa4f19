"""What the emulated fleet came to: each candidate's step as it was run, and the profiles that forecasts start from.

Each model was profiled on one cheap type, all candidates were forecast from that, and then run, untouched but for a
stopwatch at the optimizer, on data that were not in memory. What ran them is ``bench.plan.fleet`` of the tag
``archive-2026-11`` (commit f9e60d7d); ``bench.plan.fleet_judge`` decides and judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bench import recorded
from bench.plan.emulated import FleetModel, machines
from stash.core.records.profile import Profile
from stash.predict.forecasting import base_of
from stash.predict.passes import Base

DATA = Path(__file__).parent / "data"
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
