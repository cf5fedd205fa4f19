"""What a cell has cost, written into its profile, so that whoever gets the profile alone knows it too."""

from __future__ import annotations

from pathlib import Path

from stash.base.records import CellCost
from stash.derive.study.estimate import HOUR
from stash.keep.artefact import load, save


def write_cost(profile: Path, seconds: float, dollars_per_hour: float, price_source: str) -> None:
    """Add the cost of so many seconds to the profile saved there; raises ArtefactError."""
    cost = CellCost(
        dollars=dollars_per_hour * seconds / HOUR,
        seconds=seconds,
        dollars_per_hour=dollars_per_hour,
        price_source=price_source,
    )
    save(load(profile).model_copy(update={"cost": cost}), profile)
