"""Whether a device waits for its host: by how much, at most, the host is ahead of the device's queue within a step.

A host submits kernels and goes on; one that is never ahead submits them no faster than the device is done with them,
so that the step lasts as long as the host takes (launch-bound, CPU-bound: small kernels, small batches). A script
that waits for the device itself, once a step, is ahead before it does. Where it waits before every boundary between
stages, what it is ahead in between is not seen.
"""

from __future__ import annotations

from statistics import median

from stash.core.records.base import Record
from stash.core.records.profile import Profile

_LITTLE = 0.1
"""Of a step: what a device that waits for its host may be behind, e.g. by the last large kernels of an optimizer."""


class HostLead(Record):
    """Of steps on batches that are on the device already."""

    seconds: float
    """That the host is ahead, at the boundary where it is ahead most; the median of all steps and ranks."""
    step_seconds: float
    """The median of these steps."""

    @property
    def too_short(self) -> bool:
        """Whether the device waits for the host."""
        return self.seconds < _LITTLE * self.step_seconds


def host_lead(profile: Profile, rung: str) -> HostLead | None:
    """As steps under ``rung``, the ladder's lowest, show it; ``None`` where no device's queue was followed.

    A host that waits for batches, or for other ranks, keeps the device waiting as well, and is another matter: steps
    with either of them show nothing.
    """
    if rung not in ("resident", "solo"):
        return None
    blocks = [block for block in profile.blocks if block.rung == rung and block.host_leads]
    if not blocks:
        return None
    leads = [lead for block in blocks for lead in block.host_leads]
    return HostLead(seconds=median(leads), step_seconds=median(block.seconds / block.steps for block in blocks))
