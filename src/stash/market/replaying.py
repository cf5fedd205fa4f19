"""One policy, one start: the job played over the market, lease by lease, until it is done.

Where a lease would run into time that nobody watched, the start is not covered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stash.core.errors import StashError, UserError
from stash.market.job_market import CloudRegion, JobMarket, JobState, Policy, move_dollars
from stash.market.leases import End, Lease, LeaseBill, LeaseProgress, bill_of, lease_of
from stash.market.market_trace import iso_time

_MAX_LEASES = 10_000
_SAME = 1e-3
"""Seconds by which nobody is late."""


class UncoveredError(StashError):
    """The replay would need prices that nobody watched."""

    code = "uncovered"


@dataclass(frozen=True)
class ReplayedRun:
    """What one policy came to from one start."""

    policy: str
    start: float
    dollars: float
    seconds: float | None
    """``None``: late, and not done by the end of what was watched."""
    late: bool
    leases: tuple[LeaseBill, ...]
    parts: Mapping[str, float]
    """The dollars, each in one part."""

    def count(self, end: End) -> int:
        """How many leases ended so: ``moved`` ones were given up for another."""
        return sum(lease.end == end for lease in self.leases)


@dataclass(frozen=True)
class _Run:
    """A replay as far as it is."""

    market: JobMarket
    now: float
    copies: tuple[CloudRegion, ...]
    lease: Lease | None = None
    saved: float = 0.0
    """Samples."""
    bills: tuple[LeaseBill, ...] = ()
    egress: float = 0.0
    uncovered: str = ""
    """What was not watched, where it cannot go on."""

    @property
    def is_done(self) -> bool:
        return bool(self.uncovered) or (bool(self.bills) and self.bills[-1].end == "finished")

    def state(self, start: float, deadline: float | None, memory: Any) -> JobState:
        progress = LeaseProgress()
        rate = 0.0
        held = None
        ready = self.now
        if self.lease is not None:
            progress = self.lease.progress(self.now)
            rate = self.lease.rate
            held = self.lease.offer
            ready = self.lease.ready
        done, saved = (self.saved + seconds * rate for seconds in (progress.worked, progress.saved))
        return JobState(
            self.market, self.now, start, deadline, done, saved, held, ready, self.copies, memory
        )


def _end_lease(run: _Run, when: float, end: End, saving_from: float | None = None) -> _Run:
    assert run.lease is not None
    bill = bill_of(run.market, run.lease, when, end, saving_from)
    return replace(
        run, now=when, lease=None, saved=run.saved + bill.samples, bills=(*run.bills, bill)
    )


def _lose_lease(run: _Run, saving_from: float | None = None) -> _Run:
    """The lease ends because its offer is gone, or it is not covered as nobody watched it any longer."""
    assert run.lease is not None
    trace = run.market.trace
    offer = run.lease.offer
    gone = run.lease.gone
    if math.isnan(trace.price[trace.find(offer, gone)]):
        name = run.market.offers[offer].name
        return replace(run, now=gone, uncovered=f"{name} was not watched all the time")
    return _end_lease(run, gone, "revoked", saving_from)


def _release(run: _Run, end: End) -> _Run:
    """Save what is unsaved and release; a revocation may come first."""
    assert run.lease is not None
    progress = run.lease.progress(run.now)
    if progress.worked <= progress.saved:
        return _end_lease(run, run.now, end)
    done = run.now + run.lease.save - progress.saving
    return (
        _lose_lease(run, run.now) if run.lease.gone < done else _end_lease(run, done, end, run.now)
    )


def _rent(run: _Run, offer: int) -> _Run:
    """Bring checkpoint and data, the data to a region that has none of them yet, and begin a lease."""
    market, job = run.market, run.market.job
    egress = run.egress
    copies = run.copies
    place = market.offers[offer]
    if run.saved > 0:
        egress += move_dollars(
            market.fees, market.offers[run.bills[-1].offer], place, job.checkpoint
        )
    if job.data and place[:2] not in copies:
        egress += market.data_dollars(copies[0], offer) if copies else 0.0
        copies = (*copies, place[:2])
    return replace(
        run, lease=lease_of(market, offer, run.now, run.saved), egress=egress, copies=copies
    )


def _hold(run: _Run, offer: int | None) -> _Run:
    """Release what is held, and rent ``offer``, unless it is the same or gone while the old machine saved."""
    if (None if run.lease is None else run.lease.offer) == offer:
        return run
    if run.lease is not None:
        run = _release(run, "released" if offer is None else "moved")
        if run.is_done or run.bills[-1].end == "revoked":
            return run
    market = run.market
    return (
        _rent(run, offer)
        if offer is not None and market.there[market.trace.find(offer, run.now)]
        else run
    )


def _advance(run: _Run, wake: float) -> _Run:
    """Go on to the next question, or to the end of the lease."""
    if run.lease is None:
        end = float(run.market.trace.end)
        if wake > end or run.now >= end:
            return replace(
                run, now=max(run.now, end), uncovered="the record ends before the job does"
            )
        return replace(run, now=wake)
    if run.lease.finish <= min(run.lease.gone, wake):
        return _end_lease(run, run.lease.finish, "finished")
    return _lose_lease(run) if run.lease.gone <= wake else replace(run, now=wake)


def play(
    market: JobMarket, policy: Policy, start: float, deadline: float | None = None
) -> ReplayedRun:
    """``policy`` from ``start`` (seconds since 1970), which may take ``deadline`` seconds.

    Raises UncoveredError where what it needs was not watched, and UserError where the policy is at fault.
    """
    limit = None if deadline is None else start + deadline
    memory = None
    run = _Run(market, start, () if market.home is None else (market.home,))
    while len(run.bills) < _MAX_LEASES:
        state = run.state(start, limit, memory)
        decision = policy.decide(state)
        memory = decision.memory
        held = state.held
        if decision.hold not in (None, held) and not state.there[decision.hold]:
            name = f"{market.offers[decision.hold].name} at {iso_time(run.now)}"
            raise UserError(f"policy {policy.name} rents {name}, which could not be rented then")
        before = len(run.bills)
        run = _hold(run, decision.hold)
        if not run.is_done and not (len(run.bills) > before and run.bills[-1].end == "revoked"):
            change = run.state(start, limit, None).next_change if decision.changes else math.inf
            run = _advance(run, min(max(decision.until, run.now + 1.0), change))
        if run.is_done:
            if run.uncovered and (limit is None or run.now < limit):
                raise UncoveredError(run.uncovered)
            if run.lease is not None:
                run = _end_lease(run, run.now, "released")
            parts: Counter[str] = Counter({"egress": run.egress} if run.egress else {})
            for bill in run.bills:
                parts.update(bill.parts)
            dollars = run.egress + sum(bill.dollars for bill in run.bills)
            seconds = None if run.uncovered else run.now - start
            late = limit is not None and (seconds is None or run.now > limit + _SAME)
            return ReplayedRun(policy.name, start, dollars, seconds, late, run.bills, dict(parts))
    raise UserError(
        f"policy {policy.name} moves in circles: {_MAX_LEASES:,} leases, and the job is not done"
    )


def check_parts(played: ReplayedRun) -> None:
    """Every dollar belongs to one part: raises StashError where they do not add up to the bill."""
    total = sum(played.parts.values())
    if abs(total - played.dollars) > 1e-6 * max(1.0, abs(played.dollars)):
        raise StashError(
            f"the parts of {played.policy}'s bill from {iso_time(played.start)} add up to ${total:.6f}, not "
            f"${played.dollars:.6f}; please report this"
        )
