"""One lease, from grant to release or revocation, and where each of its dollars went.

A lease boots, fetches, and then works in stretches of W seconds, each closed by a checkpoint of s seconds but the
last of the training. After e seconds of that, n = ⌊e / (W + s)⌋ checkpoints are finished and r = e − n·(W + s)
seconds of the next stretch are gone, so n·W seconds of work are safe and min(r, W) are not. The whole machine is
paid, second by second at the price in force.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from stash.core.ladder import STALLS
from stash.market.job_market import JobMarket

PARTS = (*STALLS, "boot", "download", "checkpoints", "lost work", "egress")
"""What dollars are for: useful compute and the other stalls of a step first. *download* is the lease's fetch."""
End = Literal["finished", "moved", "revoked", "released"]
_SAME = 1e-9


class LeaseProgress(NamedTuple):
    """How far a lease is; seconds of work on its own offer."""

    worked: float = 0.0
    saved: float = 0.0
    """Of it, in a finished checkpoint."""
    saving: float = 0.0
    """Seconds since the checkpoint that is being written began; 0: none is."""
    checkpoints: int = 0


@dataclass(frozen=True)
class Lease:
    """One machine, or gang of them, that is held."""

    offer: int
    granted: float
    boot_ends: float
    ready: float
    rate: float
    """Samples a second."""
    needed: float
    """Seconds of work on it that finish the training."""
    stretch: float
    """W; all that is needed, where no checkpoint is written."""
    save: float
    """s."""
    gone: float
    """When it will be revoked, or is no longer watched; not for a policy to know."""

    @property
    def finish(self) -> float:
        """When the training is done, if nothing happens."""
        return (
            self.ready
            + self.needed
            + max(math.ceil(self.needed / self.stretch - _SAME) - 1, 0) * self.save
        )

    def progress(self, now: float) -> LeaseProgress:
        elapsed = min(now, self.finish) - self.ready
        cycle = self.stretch + self.save
        if elapsed <= 0:
            return LeaseProgress()
        whole = math.floor(elapsed / cycle + _SAME)
        if (whole + _SAME) * self.stretch >= self.needed:  # the training's end needs no checkpoint
            return LeaseProgress(self.needed, self.needed, 0.0, max(whole - 1, 0))
        rest = max(elapsed - whole * cycle, 0.0)
        saved = whole * self.stretch
        return LeaseProgress(
            saved + min(rest, self.stretch), saved, max(rest - self.stretch, 0.0), whole
        )


def lease_of(market: JobMarket, offer: int, now: float, saved: float) -> Lease:
    """A lease granted ``now``, when so many samples were safe."""
    job = market.job
    rate = float(market.rates[offer])
    needed = (job.samples - saved) / rate
    ready = now + market.start_seconds(saved > 0)
    stretch = min(job.interval, needed)
    return Lease(
        offer,
        now,
        now + job.boot,
        ready,
        rate,
        needed,
        stretch,
        job.save_seconds,
        market.offer_end(offer, now),
    )


@dataclass(frozen=True)
class LeaseBill:
    """One lease that has ended."""

    offer: int
    granted: float
    ended: float
    end: End
    dollars: float
    parts: Mapping[str, float]
    samples: float
    """Safe at its end, of those trained on it."""


def bill_of(
    market: JobMarket, lease: Lease, ended: float, end: End, saving_from: float | None = None
) -> LeaseBill:
    """What it came to. ``saving_from``: when the checkpoint before a move began, if one was written."""

    def cost(*edges: float | np.ndarray) -> np.ndarray:
        return market.trace.paid(lease.offer, np.stack(edges, axis=-1)) * market.job.machines

    until = ended if saving_from is None else saving_from
    progress = lease.progress(until)
    marks = [min(each, until) for each in (lease.granted, lease.boot_ends, lease.ready, until)]
    boot, fetch, work, tail = cost(*marks, ended).tolist()
    # The checkpoints in the middle of the work, the unfinished one included.
    begins = np.arange(progress.checkpoints + (progress.saving > 0)) * (lease.stretch + lease.save)
    begins = lease.ready + lease.stretch + begins
    saves = float(cost(begins, np.minimum(begins + lease.save, until)).sum())
    lost = 0.0
    if end == "revoked" and progress.worked > progress.saved:
        begin = lease.ready + progress.checkpoints * (lease.stretch + lease.save)
        lost = float(cost(begin, begin + progress.worked - progress.saved)[0])
    useful = work - saves - lost
    parts = {name: useful * share for name, share in market.speeds[lease.offer].stalls.items()}
    parts = {"compute": useful - sum(parts.values()), **parts, "boot": boot, "download": fetch}
    parts |= {"checkpoints": saves + tail, "lost work": lost}
    is_safe = end == "finished" or (end != "revoked" and saving_from is not None)
    samples = (progress.worked if is_safe else progress.saved) * lease.rate
    dollars = float(cost(lease.granted, ended)[0])
    shown = {name: value for name, value in parts.items() if value}
    return LeaseBill(lease.offer, lease.granted, ended, end, dollars, shown, samples)
