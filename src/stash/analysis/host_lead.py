"""Whether a device waits for its host: by how much, at most, the host is ahead of the device's queue within a pass.

A host submits kernels and goes on; one that is never ahead submits them no faster than the device is done with them,
so that the step lasts as long as the host takes (launch-bound, CPU-bound: small kernels, small batches). A script
that waits for the device itself, once a pass, is ahead before it does. Where it waits before every boundary between
stages, what it is ahead in between is not seen. Only of hosts that do nothing else: none that sleeps, waits for ranks
or for batches, or has work of its own between steps.
"""

from __future__ import annotations

from statistics import median

from stash.core.measured import Block
from stash.core.records.base import Record
from stash.core.records.profile import Profile

_LITTLE = 0.06
"""Of a pass: what a device that waits for its host may be behind, e.g. by the last large kernels of an optimizer."""
_BUSY = 0.85
"""Of a step, at least, the process is on a core where it submits kernels all the time."""
_BETWEEN = 0.25
"""Of a step, at most, passes between an optimizer's step and the next batch."""


class HostLead(Record):
    """Of steps on batches that are on the device already."""

    seconds: float
    """That the host is ahead, at the boundary where it is ahead most; the median of all steps and ranks."""
    step_seconds: float
    """The median of these steps."""
    passes: int
    """Forward and backward passes of a step."""

    @property
    def too_short(self) -> bool:
        """Whether the device waits for the host."""
        return self.seconds < _LITTLE * self.step_seconds / self.passes


def host_lead(profile: Profile, rung: str) -> HostLead | None:
    """As steps under ``rung``, the ladder's lowest, show it.

    ``None`` where no device's queue was followed, no loader was seen whose batches could be replayed, or the host did
    other things.
    """
    blocks = [block for block in profile.blocks if block.rung == rung and block.host_leads]
    if not blocks or rung not in ("resident", "solo") or not profile.workload.loaders:
        return None
    if not all(map(_submits, blocks)):
        return None
    leads = [lead for block in blocks for lead in block.host_leads]
    return HostLead(
        seconds=median(leads),
        step_seconds=median(block.seconds / block.steps for block in blocks),
        passes=max(1, *(loader.batches_per_step for loader in profile.workload.loaders)),
    )


def _submits(block: Block) -> bool:
    """Whether the host did little else in its steps than to run the model's code."""
    stages = sum(block.stage_seconds.values())
    between = block.stage_seconds.get("between", 0.0)
    busy = block.cpu_seconds is not None and block.cpu_seconds >= _BUSY * block.seconds
    return busy and stages > 0 and between <= _BETWEEN * stages
