"""A run held against a profile of the same job: what its stalls should be, and whether the two can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stash.analysis.attribution import attribute
from stash.core.artefact import load
from stash.core.errors import UserError

GROUPS = {
    "compute": ("compute",),
    "contention": ("contention",),
    "transfer": ("transfer",),
    "exchange": ("interconnect", "network"),
    "input": ("prep", "fetch"),
}
"""A window's stalls, and those of the ladder that they contain."""


@dataclass(frozen=True)
class RunBaseline:
    """A profile's step, by the names of windows, and as the profile splits it."""

    source: str
    ranks: int
    stalls: dict[str, float]
    """By the names of windows, and ``step``; those that the profile knows."""
    split: dict[str, float]
    """By the ladder's names, and ``step``."""


def load_baseline(path: Path, job: str, force: bool) -> RunBaseline:
    """The profile at ``path``; raises UserError if it is of another job than ``job``, unless by ``force``."""
    profile = load(path)
    breakdown = attribute(profile)
    if profile.workload.name != job and not force:
        raise UserError(
            f"--baseline {path} is a profile of {profile.workload.name}, and this is {job}; name a profile of the "
            "same job, or add --force"
        )
    split = {stall.name: stall.seconds for stall in breakdown.stalls}
    stalls = {
        name: sum(split.get(part, 0.0) for part in parts)
        for name, parts in GROUPS.items()
        if any(part in split for part in parts)
    }
    step = {"step": breakdown.step_seconds}
    return RunBaseline(str(path), breakdown.world_size, stalls | step, split | step)
