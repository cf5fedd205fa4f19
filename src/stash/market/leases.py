"""One lease, from grant to release or revocation, and where each of its dollars went.

A lease boots, fetches, and then works in stretches of W seconds, each closed by a checkpoint of s seconds but the
last of the training. After e seconds of that, n = ⌊e / (W + s)⌋ checkpoints are finished and r = e − n·(W + s)
seconds of the next stretch are gone, so n·W seconds of work are safe and min(r, W) are not. The whole machine is
paid, second by second at the price in force; what is paid beyond the time it was held (a minimum, an increment) is
*rounding*.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from stash.core.ladder import STALLS
from stash.market.decisions import JobMarket
from stash.market.market_trace import HOUR

PARTS = (
    *STALLS,
    "boot",
    "download",
    "checkpoints",
    "lost work",
    "idle GPUs",
    "rounding",
    "egress",
)
"""What dollars are for: useful compute and the other stalls of a step first. *download* is the lease's fetch."""
End = Literal["finished", "moved", "revoked", "released"]
_SAME = 1e-9


@dataclass(frozen=True)
class LeaseProgress:
    """How far a lease is; seconds of work on its own offer."""

    worked: float
    saved: float
    """Of it, in a finished checkpoint."""
    saving: float
    """Seconds since the checkpoint that is being written began; 0: none is."""
    checkpoints: int
    """Finished."""


@dataclass(frozen=True)
class Lease:
    """One machine, or gang of them, that is held."""

    offer: int
    granted: float
    boot_ends: float
    ready: float
    """When work begins."""
    done: float
    """Samples that were safe when it began."""
    rate: float
    """Samples a second."""
    needed: float
    """Seconds of work on it that finish the training."""
    stretch: float
    """W."""
    save: float
    """s."""
    gone: float
    """When it will be revoked, or is no longer watched; not for a policy to know."""

    @property
    def finish(self) -> float:
        """When the training is done, if nothing happens."""
        checkpoints = 0 if math.isinf(self.stretch) else max(math.ceil(self.needed / self.stretch - _SAME) - 1, 0)
        return self.ready + self.needed + checkpoints * self.save

    def progress(self, now: float) -> LeaseProgress:
        elapsed = min(now, self.finish) - self.ready
        if elapsed <= 0:
            return LeaseProgress(0.0, 0.0, 0.0, 0)
        if math.isinf(self.stretch):
            return LeaseProgress(elapsed, 0.0, 0.0, 0)
        cycle = self.stretch + self.save
        whole = math.floor(elapsed / cycle + _SAME)
        rest = max(elapsed - whole * cycle, 0.0)
        last = whole * self.stretch + _SAME * self.needed >= self.needed  # the training's end needs no checkpoint
        if last:
            return LeaseProgress(self.needed, self.needed, 0.0, max(whole - 1, 0))
        worked = whole * self.stretch + min(rest, self.stretch)
        return LeaseProgress(worked, whole * self.stretch, max(rest - self.stretch, 0.0), whole)


def lease_of(market: JobMarket, offer: int, now: float, done: float, resumes: bool) -> Lease:
    """A lease granted ``now``."""
    job, trace = market.job, market.trace
    boot = now + job.boot
    ready = boot + job.fetch_seconds(resumes)
    rate = float(market.rates[offer])
    gone = float(market.until[trace.piece(offer, now)])
    stretch, needed = job.interval, (job.samples - done) / rate
    return Lease(offer, now, boot, ready, done, rate, needed, stretch, job.save_seconds, gone)


@dataclass(frozen=True)
class LeaseBill:
    """One lease that has ended."""

    offer: int
    granted: float
    ended: float
    end: End
    seconds_paid: float
    dollars: float
    parts: Mapping[str, float]
    saved_seconds: float
    """Of work that were safe at its end."""


def bill_of(market: JobMarket, lease: Lease, ended: float, end: End, saving_from: float | None = None) -> LeaseBill:
    """What it came to. ``saving_from``: when the checkpoint before a move began, if one was written."""
    trace, job = market.trace, market.job
    rule = market.rules[lease.offer]
    held = ended - lease.granted
    paid = rule.billed(held, end == "revoked")
    working_until = ended if saving_from is None else saving_from
    progress = lease.progress(working_until)
    whole = end == "finished" or (end != "revoked" and saving_from is not None)
    saved = progress.worked if whole else progress.saved
    if paid == 0.0:
        return LeaseBill(lease.offer, lease.granted, ended, end, 0.0, 0.0, {}, saved)
    # Where boot, fetch, work with its checkpoints, and the checkpoint before a move begin and end.
    edges = [lease.granted, lease.boot_ends, lease.ready, working_until, ended]
    marks = [min(max(each, lease.granted), ended) for each in np.minimum.accumulate(edges[::-1])[::-1]]
    cost = np.diff(trace.paid(lease.offer, np.array(marks))) * job.machines
    boot, fetch, work_and_saves, tail = (float(each) for each in cost)
    saves = _saves(market, lease, progress, working_until)
    lost = 0.0
    if end == "revoked" and progress.worked > progress.saved:
        begin = lease.ready + (
            0.0 if math.isinf(lease.stretch) else progress.checkpoints * (lease.stretch + lease.save)
        )
        lost_until = begin + progress.worked - progress.saved
        lost = trace.dollars(lease.offer, begin, lost_until) * job.machines
    useful = work_and_saves - saves - lost
    price = float(trace.price[trace.piece(lease.offer, max(ended - 1, lease.granted))]) * job.machines
    parts = _useful(market, lease.offer, useful)
    parts |= {"boot": boot, "download": fetch, "checkpoints": saves + tail, "lost work": lost}
    parts["rounding"] = (paid - held) * price / HOUR
    parts = {name: dollars for name, dollars in parts.items() if dollars}
    dollars = trace.dollars(lease.offer, lease.granted, ended) * job.machines + (paid - held) * price / HOUR
    return LeaseBill(lease.offer, lease.granted, ended, end, paid, dollars, parts, saved)


def _saves(market: JobMarket, lease: Lease, progress: LeaseProgress, until: float) -> float:
    """Dollars of the checkpoints in the middle of the work, the unfinished one included."""
    if math.isinf(lease.stretch) or lease.save == 0.0:
        return 0.0
    count = progress.checkpoints + (1 if progress.saving > 0 else 0)
    begins = lease.ready + np.arange(count) * (lease.stretch + lease.save) + lease.stretch
    edges = np.stack([begins, np.minimum(begins + lease.save, until)]).astype(np.float64)
    return float(np.diff(market.trace.paid(lease.offer, edges), axis=0).sum()) * market.job.machines


def _useful(market: JobMarket, offer: int, dollars: float) -> dict[str, float]:
    """Useful work, by stall, and the GPUs that stood beside it."""
    rate = market.job.rate(market.offers[offer])
    assert rate is not None
    used = dollars * rate.busy
    stalls = {name: used * share for name, share in rate.stalls.items()}
    return {"compute": used - sum(stalls.values()), **stalls, "idle GPUs": dollars - used}
