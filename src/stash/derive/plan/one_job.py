"""Whether several profiles are of one job: a recommendation rests on all of them, so they must train the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stash.base.errors import UserError
from stash.base.records import Profile


def refuse_different_jobs(profiles: Sequence[Profile], names: Sequence[str]) -> None:
    """Raise UserError, naming the first two that differ and in what; machines and ranks may."""
    for profile, name in zip(profiles[1:], names[1:], strict=True):
        first, other = _essentials(profiles[0]), _essentials(profile)
        for about, value in first.items():
            if value is not None and other[about] is not None and value != other[about]:
                raise UserError(
                    f"{names[0]} and {name} are different jobs, in {about} ({value} and {other[about]}); recommend "
                    "for one of them"
                )


def _essentials(profile: Profile) -> Mapping[str, str | None]:
    workload = profile.workload
    return {
        "workload": workload.name,
        "parameters": None if workload.parameters is None else f"{workload.parameters:,}",
        "precision": workload.precision,
    }
