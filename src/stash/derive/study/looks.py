"""What a breakdown does not say of a cell's profile, and figures of a study need: busy devices, layers, gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stash.base.records import Profile
from stash.derive.predict.exchange.traffic import exchanged
from stash.derive.stalls import step_matrix, usage
from stash.derive.stalls.usage import Resource


@dataclass(frozen=True)
class ProfileLook:
    """Of one profile."""

    busy: Mapping[Resource, float]
    """Fractions of the time under the highest rung, mean over nodes; what was not recorded is left out."""
    layers: int | None
    """Gradients that are exchanged: one for each trained tensor."""
    gradient_bytes: float | None
    """As exchanged; of an emulated place by its scale less than the model's."""


def look(profile: Profile) -> ProfileLook:
    """Of one cell's profile, which has a complete round."""
    kept = step_matrix(profile).calmed()
    work = exchanged(profile)
    gradients = work.gradients if work is not None else ()
    return ProfileLook(
        busy={use.resource: use.amount for use in usage(profile, kept) if use.rung == kept.rungs[-1]},
        layers=len(gradients) or None,
        gradient_bytes=float(sum(gradients)) or None,
    )
