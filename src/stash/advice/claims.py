"""What may be claimed of a breakdown, by its intervals alone: which stall dominates, which tie, which are open.

Says nothing and advises nothing; the rules, with their thresholds, are those of ``docs/method.md``.
"""

from __future__ import annotations

from typing import Literal

from stash.analysis.breakdown import SIGNIFICANT_SHARE, SMALL_SHARE, Breakdown, Dispute, Missing, Stall
from stash.analysis.stability import MIN_ROUNDS
from stash.core.records.base import Record

MINOR_SHARE = 0.1
"""Of the step: a stall that certainly takes less, and is not certain to take ``SIGNIFICANT_SHARE``, is minor: it
keeps no verdict open."""
Kind = Literal["stall", "tie", "compute", "cannot tell", "estimate"]


class Claims(Record):
    """What a breakdown supports; compute is never among its stalls."""

    kind: Kind
    """``estimate`` after fewer than three rounds: nothing is certain, and nothing is named."""
    certain: tuple[Stall, ...] = ()
    """Stalls that certainly matter, largest first: all for ``cannot tell``, else those that may be the largest."""
    open: tuple[Stall, ...] = ()
    """Neither certain nor minor: the farthest first."""
    disputed: tuple[Stall, ...] = ()
    """Stalls of which two estimates contradict each other for no known cause; in neither of the above."""
    unknown: tuple[Missing, ...] = ()
    """Stalls that such a job can have and that were not measured."""

    other_job: bool = False
    """What was measured is not the job that was typed: nothing is claimed of it."""

    @property
    def hidden(self) -> tuple[Missing, ...]:
        """The unknown ones whose time is counted as compute, unless it is too short to matter."""
        return tuple(each for each in self.unknown if each.contained_in == "compute" and not each.small)


def may_claim(breakdown: Breakdown) -> Claims:
    """The claims that the breakdown's intervals allow.

    A stall dominates if it is certain and no uncertain one may be larger than its own interval allows. One of which
    two estimates contradict each other is not certain. Certain stalls whose intervals overlap the largest one's tie:
    intervals that do not overlap differ, however the errors of the two go together. Compute dominates where nothing
    is certain, every measured stall is minor, and compute contains no unmeasured one. Of a job whose first steps, as
    it was typed, took another time than what was measured nothing is claimed.
    """
    unknown = tuple(missing for missing in breakdown.skipped if missing.possible)
    if breakdown.as_typed is not None and breakdown.as_typed.contradicts:
        return Claims(kind="cannot tell", other_job=True, unknown=unknown)
    if breakdown.repetitions < MIN_ROUNDS:
        return Claims(kind="estimate", unknown=unknown)
    step = breakdown.step_seconds
    every = [stall for stall in breakdown.stalls if stall.name != "compute"]
    disputes = ((stall, breakdown.disputed(stall.name)) for stall in every)
    # the larger of two estimates
    most = {stall.name: max(_high(stall), _waited(breakdown, dispute)) for stall, dispute in disputes if dispute}
    disputed = tuple(stall for stall in every if stall.name in most and most[stall.name] > MINOR_SHARE * step)
    stalls = [stall for stall in every if stall not in disputed]
    # worth a sentence at its lower end too, and known to within half of itself or 5 % of the step
    certain = [s for s in stalls if s.significant and _low(s) >= SIGNIFICANT_SHARE * step]
    certain = [s for s in certain if s.width <= max(s.seconds / 2, SMALL_SHARE * step)]
    certain.sort(key=lambda stall: -stall.seconds)
    large = [s for s in stalls if s not in certain and _high(s) > MINOR_SHARE * step]
    large.sort(key=lambda stall: -_high(stall))
    found = Claims(kind="cannot tell", certain=tuple(certain), open=tuple(large), disputed=disputed, unknown=unknown)
    may_be = max([*map(_high, large), *(most[stall.name] for stall in disputed)], default=0.0)
    if certain and may_be <= _high(certain[0]):
        leading = tuple(s for s in certain if _high(s) >= _low(certain[0]))
        return found.model_copy(update={"kind": "tie" if len(leading) > 1 else "stall", "certain": leading})
    if certain or large or disputed or found.hidden:
        return found
    return found.model_copy(update={"kind": "compute"})


def _waited(breakdown: Breakdown, dispute: Dispute) -> float:
    """For the last of the disputed stalls: of prep and fetch together, what is not waited for prep alone."""
    before = breakdown.waits.warm if len(dispute.stalls) > 1 else None
    return dispute.waited - (before or 0.0)


def decisive_width(stall: Stall, step_seconds: float) -> float:
    """The width in seconds at which an open stall of this estimate is either certain or minor."""
    certain = min(
        stall.seconds - SIGNIFICANT_SHARE * step_seconds, max(stall.seconds / 2, SMALL_SHARE * step_seconds)
    )
    return max(certain, MINOR_SHARE * step_seconds - stall.seconds)


def _low(stall: Stall) -> float:
    return stall.seconds if stall.low is None else stall.low


def _high(stall: Stall) -> float:
    return stall.seconds if stall.high is None else stall.high
