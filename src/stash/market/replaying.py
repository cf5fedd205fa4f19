"""One policy, one start: the job played over the market, lease by lease, until it is done.

Whatever a policy answers is checked against what can be: an offer that is not there is an error of the policy, and so
is moving in circles. Where a lease would run into time that nobody watched, the start is not covered.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stash.core.errors import StashError, UserError, one_line
from stash.market.decisions import JobMarket, JobState, MoveTo, OfferBoard, Policy, PolicyAnswer, Stay, Wait
from stash.market.leases import End, Lease, LeaseBill, bill_of, lease_of
from stash.market.market_trace import MarketOffer, stamp

_MAX_MOVES, _MAX_ASKED = 20_000, 1_000_000
_SAME = 1e-3
"""Seconds by which nobody is late."""
_IN_VAIN = 200
"""Leases one after the other without a sample saved: a policy that moves in circles."""


class UncoveredError(StashError):
    """The replay would need prices that nobody watched."""

    code = "uncovered"


@dataclass(frozen=True)
class ReplayedRun:
    """What one policy came to from one start."""

    policy: str
    start: float
    dollars: float
    finish: float | None
    """A moment; ``None``: late, and not done by the end of what was watched."""
    late: bool
    leases: tuple[LeaseBill, ...]
    parts: Mapping[str, float]
    """The dollars, each in one part."""

    @property
    def moves(self) -> int:
        """Leases given up for another."""
        return sum(lease.end == "moved" for lease in self.leases)

    @property
    def revocations(self) -> int:
        return sum(lease.end == "revoked" for lease in self.leases)

    @property
    def seconds(self) -> float | None:
        return None if self.finish is None else self.finish - self.start


@dataclass
class _Run:
    """A replay that goes on."""

    market: JobMarket
    policy: Policy
    start: float
    deadline: float | None
    now: float = 0.0
    saved: float = 0.0
    """Samples."""
    lease: Lease | None = None
    last: MarketOffer | None = None
    """Where the checkpoint lies."""
    revoked: bool = False
    memory: Any = None
    bills: list[LeaseBill] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    copies: dict[tuple[str, str], None] = field(default_factory=dict)
    """Regions that have the data; the first one had them before."""
    asked: int = 0
    in_vain: int = 0

    def play(self) -> ReplayedRun:
        self.now, self.memory = self.start, self.policy.memory
        try:
            while True:
                until, changes = self._ask()
                if self._advance(until, changes):
                    return self._played(self.now)
        except UncoveredError:
            if self.deadline is None or self.now < self.deadline:
                raise
            return self._played(None)

    def _ask(self) -> tuple[float, bool]:
        """Let the policy decide, do it, and say until when nothing is to be asked."""
        while True:
            self.asked += 1
            if self.asked > _MAX_ASKED:
                raise UserError(
                    f"policy {self.policy.name} was asked {_MAX_ASKED:,} times and is not done; see until="
                )
            home = next(iter(self.copies), None)
            board = OfferBoard(self.market, self.now, self.copies, home)
            state = self._state()
            answer, self.memory = self._decided(state, board)
            self.revoked, before = False, self.lease
            self._do(answer, board)
            if answer.until > self.now:
                return answer.until, answer.changes
            if self.lease is before:  # nothing has happened, so nothing else is to be asked yet
                return self.now + 1.0, answer.changes

    def _decided(self, state: JobState, board: OfferBoard) -> tuple[PolicyAnswer, Any]:
        try:
            found, memory = self.policy.decide(self.now, state, board, self.memory)
        except UserError as error:
            raise UserError(f"policy {self.policy.name} at {stamp(self.now)}: {error}", code=error.code) from error
        except (StashError, KeyboardInterrupt):
            raise
        except Exception as error:  # anybody's code
            why = f"{type(error).__name__}: {one_line(error)}"
            raise UserError(f"policy {self.policy.name} failed at {stamp(self.now)}: {why}") from error
        if not isinstance(found, (Stay, MoveTo, Wait)):
            raise UserError(
                f"policy {self.policy.name} answered {type(found).__name__} at {stamp(self.now)}; answer Stay, "
                "MoveTo or Wait, and the memory"
            )
        return found, memory

    def _state(self) -> JobState:
        lease = self.lease
        done = saved = self.saved
        if lease is not None:
            progress = lease.progress(self.now)
            done, saved = self.saved + progress.worked * lease.rate, self.saved + progress.saved * lease.rate
        return JobState(
            self.start,
            self.deadline,
            self.market.job.samples,
            done,
            saved,
            None if lease is None else lease.offer,
            self.now if lease is None else lease.ready,
        )

    def _check(self, offer: int) -> None:
        if not 0 <= offer < len(self.market.offers):
            raise UserError(
                f"policy {self.policy.name} named offer {offer} at {stamp(self.now)}; the board has 0 to "
                f"{len(self.market.offers) - 1}"
            )

    def _do(self, answer: PolicyAnswer, board: OfferBoard) -> None:
        if isinstance(answer, Stay):
            return
        held = None if self.lease is None else self.lease.offer
        if isinstance(answer, Wait):
            if self.lease is not None:
                self._give_up("released")
            return
        self._check(answer.to)
        if answer.to == held:
            return
        if not board.there[answer.to]:
            raise UserError(
                f"policy {self.policy.name} moves to {self.market.offers[answer.to].name} at {stamp(self.now)}, "
                "which could not be rented then (board.there says so)"
            )
        if self.lease is not None and not self._give_up("moved"):
            return  # revoked while it saved: the policy is asked again
        if not board.there[answer.to] or not self.market.there[self.market.trace.piece(answer.to, self.now)]:
            return  # gone while the old machine saved
        self._grant(answer.to)

    def _give_up(self, end: End) -> bool:
        """Save what is unsaved and release; whether that went well."""
        assert self.lease is not None
        progress = self.lease.progress(self.now)
        if progress.worked <= progress.saved:
            self._ended(self.now, end, None)
            return True
        rest = self.lease.save - progress.saving if progress.saving > 0 else self.lease.save
        began, done = self.now, self.now + rest
        if self.lease.gone < done:
            self._leave_at_gone(began)
            return False
        self.now = done
        self._ended(done, end, began)
        return True

    def _leave_at_gone(self, saving_from: float | None = None) -> None:
        """The lease ends because its offer is gone; raises UncoveredError if only nobody watched it any longer."""
        assert self.lease is not None
        lease, trace = self.lease, self.market.trace
        self.now = lease.gone
        if math.isnan(trace.price[trace.piece(lease.offer, lease.gone)]):
            name = self.market.offers[lease.offer].name
            raise UncoveredError(f"{name} is not watched from {stamp(lease.gone)} on")
        self.revoked = True
        self._ended(lease.gone, "revoked", saving_from)

    def _ended(self, when: float, end: End, saving_from: float | None) -> None:
        assert self.lease is not None
        bill = bill_of(self.market, self.lease, when, end, saving_from)
        self.bills.append(bill)
        self.saved += bill.saved_seconds * self.lease.rate
        self.last = self.market.offers[self.lease.offer]
        self.in_vain = 0 if bill.saved_seconds > 0 else self.in_vain + 1
        self.lease = None
        if self.in_vain > _IN_VAIN or len(self.bills) > _MAX_MOVES:
            raise UserError(
                f"policy {self.policy.name} moves in circles: {len(self.bills):,} leases from {stamp(self.start)} "
                f"on, the last {self.in_vain:,} without a sample saved"
            )

    def _grant(self, offer: int) -> None:
        job, place = self.market.job, self.market.offers[offer]
        resumes = self.saved > 0
        if resumes and self.last is not None:
            self.extra["egress"] += self.market.fees.move_dollars(self.last, place, job.checkpoint)
        self._bring_data(place)
        self.lease = lease_of(self.market, offer, self.now, self.saved, resumes)

    def _bring_data(self, place: MarketOffer) -> None:
        """The data, from where they lie to a region that has none of them yet."""
        job, here = self.market.job, (place.cloud, place.region)
        if not job.data or here in self.copies:
            return
        home = next(iter(self.copies), None) or data_home(self.market)
        if home is not None:
            self.copies.setdefault(home)
        if here in self.copies:
            return
        if home is not None:
            self.extra["egress"] += self.market.data_dollars(home, place)
        self.copies[here] = None

    def _advance(self, until: float, changes: bool) -> bool:
        """Go on to the next question; whether the training is done."""
        if self.revoked:
            return False
        wake = until
        if changes:
            wake = min(wake, OfferBoard(self.market, self.now).next_change)
        if self.lease is None:
            end = float(self.market.trace.end)
            if not wake < math.inf or wake > end or self.now >= end:
                self.now = max(self.now, end)
                raise UncoveredError(f"nothing was watched after {stamp(self.market.trace.end)}")
            self.now = wake
            return False
        first = min(self.lease.finish, self.lease.gone, wake)
        if first == self.lease.finish:
            self.now = first
            self._ended(first, "finished", None)
            return True
        if first == self.lease.gone:
            self._leave_at_gone()
            return False
        self.now = first
        return False

    def _played(self, finish: float | None) -> ReplayedRun:
        if self.lease is not None and finish is None:
            self._ended(self.now, "released", None)
        parts: dict[str, float] = defaultdict(float)
        for bill in self.bills:
            for name, dollars in bill.parts.items():
                parts[name] += dollars
        for name, dollars in self.extra.items():
            if dollars:
                parts[name] += dollars
        whole = sum(bill.dollars for bill in self.bills) + sum(self.extra.values())
        late = self.deadline is not None and (finish is None or finish > self.deadline + _SAME)
        return ReplayedRun(self.policy.name, self.start, whole, finish, late, tuple(self.bills), dict(parts))


def data_home(market: JobMarket) -> tuple[str, str] | None:
    """Cloud and region in which the data lie; ``None``: where the first machine is. A cloud alone has no region."""
    named = market.job.data_in
    if named is None:
        return None
    cloud, slash, region = named.partition("/")
    if slash:
        return cloud, region
    regions = {(each.cloud, each.region) for each in market.offers if each.region == named}
    return min(regions) if regions else (named, "")


def play(market: JobMarket, policy: Policy, start: float, deadline: float | None = None) -> ReplayedRun:
    """``policy`` from ``start`` (seconds since 1970), which may take ``deadline`` seconds.

    Raises UncoveredError where what it needs was not watched, and UserError where the policy is at fault.
    """
    return _Run(market, policy, start, None if deadline is None else start + deadline).play()


def check_parts(played: ReplayedRun) -> None:
    """Every dollar belongs to one part: raises StashError where they do not add up to the bill."""
    total = sum(played.parts.values())
    if abs(total - played.dollars) > 1e-6 * max(1.0, abs(played.dollars)):
        raise StashError(
            f"the parts of {played.policy}'s bill from {stamp(played.start)} add up to ${total:.6f}, not "
            f"${played.dollars:.6f}; please report this"
        )
