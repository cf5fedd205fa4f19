"""When a measurement has found what it can, how far one has come, and what ``--budget`` would decide the rest.

A profile ends as soon as its verdict holds and every stall is known well enough; this is the one place that says
what that is, for the launcher that ends it, for live progress, and for advice. Extrapolates from the rounds at hand,
and believes that the machine goes on as it was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from stash.advice.claims import Claims, decisive_width, may_claim
from stash.analysis.breakdown import Breakdown, Stall
from stash.analysis.stability import MIN_ROUNDS
from stash.core.records.profile import Profile
from stash.core.rounds import rounds_needed

KNOWN = 0.02
"""Of the step: a stall known to this is known well enough …"""
KNOWN_OF_ITSELF = 0.1
"""… or to this share of itself."""
FIRST_ROUNDS = 5
"""Fewer do not end a measurement, and are asked for at least: only from here on is Student's quantile
below 3; who looks after every round finds intervals that are narrow by luck."""
FIRST_SECONDS = 5.0
"""Of measuring: nothing ends earlier, since the pace of a machine that is shared wanders within seconds, which the
noise of a shorter time does not know of."""
SETTLING_SECONDS = 30.0
"""Of measuring, for which widths are waited for."""
LONGEST = 3600.0
"""Seconds of ``--budget`` beyond which a calmer machine is the better advice."""


def is_decided(breakdown: Breakdown, precision: float | None = None) -> bool:
    """Whether measuring may end: the verdict holds, and every stall is known well enough.

    With ``precision``, a fraction of the step, that is asked of every stall instead, whatever the verdict. What more
    rounds would hardly narrow is not waited for.
    """
    few = breakdown.repetitions < MIN_ROUNDS or breakdown.rounds < FIRST_ROUNDS
    if few or _farthest_stall(breakdown, precision) is not None:
        return False
    claims = may_claim(breakdown)
    is_open = claims.kind in ("cannot tell", "compute") and any(
        stall.narrows for stall in claims.open
    )
    return precision is not None or not is_open


def is_settled(breakdown: Breakdown, spent: float, budget: float) -> bool:
    """Whether measuring for ``spent`` of its ``budget`` (seconds) is long enough for what it has found.

    So it is once a verdict holds, though widths do not: who wants those says so by a precision. Nor is a verdict
    waited for that no rounds bring, where what is subtracted for other work leaves a stall too uncertain.
    """
    if not SETTLING_SECONDS <= spent < budget or breakdown.repetitions < FIRST_ROUNDS:
        return False
    claims = may_claim(breakdown)
    return claims.kind != "cannot tell" or find_undecidable(breakdown, claims) is not None


def _wanted_noise(stall: Stall, step_seconds: float, precision: float | None) -> float:
    """Seconds of noise at which a stall is known well enough."""
    if precision is not None:
        return precision * step_seconds
    return max(KNOWN * step_seconds, KNOWN_OF_ITSELF * abs(stall.seconds))


def _noise_seconds(stall: Stall) -> float:
    """The part of its interval that more rounds narrow, in seconds; infinite if that is unknown."""
    if stall.low is None:
        return math.inf
    return math.sqrt(max(0.0, stall.width**2 - stall.parts.besides_noise**2))


def _farthest_stall(breakdown: Breakdown, precision: float | None) -> Stall | None:
    """The stall that is farthest from being known well enough; ``None`` if all are."""
    beyond = [
        (_noise_seconds(each) - _wanted_noise(each, breakdown.step_seconds, precision), each)
        for each in breakdown.stalls
    ]
    most, stall = max(beyond, key=lambda pair: pair[0])
    return stall if most > 0 else None


# How far a measurement has come


@dataclass(frozen=True)
class Standing:
    """How far a measurement has come after some complete rounds."""

    rounds: int
    stall: str | None = None
    """The one that is farthest from being known well enough; ``None`` if all are, and before the third round."""
    reached: float = 0.0
    """Half-width of its interval, as a fraction of the step."""
    wanted: float = 0.0
    """The half-width it should have, likewise."""
    rounds_needed: int | None = None
    """In all, until it has, by the spread so far; ``None`` where that is unknown."""
    settles: bool = False
    """More rounds would not change the verdict, so widths are not waited for longer than ``SETTLING_SECONDS``."""

    def seconds_left(self, elapsed: float, budget: float) -> float:
        """Seconds until the budget ends (negative: it has), or the end is expected earlier; infinite if neither."""
        ends = [budget - elapsed]
        if self.rounds_needed is not None:
            ends.append(max(0, self.rounds_needed - self.rounds) * elapsed / self.rounds)
        if self.settles:
            ends.append(max(0.0, SETTLING_SECONDS - elapsed))
        return min(ends)


def make_standing(breakdown: Breakdown, precision: float | None = None) -> Standing:
    """Where a measurement stands against what would end it."""
    rounds, sets = breakdown.rounds, breakdown.repetitions
    if sets < MIN_ROUNDS:
        return Standing(rounds)
    stall, step = _farthest_stall(breakdown, precision), breakdown.step_seconds
    if stall is None:
        return Standing(rounds, rounds_needed=max(sets, FIRST_ROUNDS) * rounds // sets)
    goal = math.hypot(_wanted_noise(stall, step, precision), stall.parts.besides_noise)
    needed = _rounds_for(stall, goal, sets)
    return Standing(
        rounds=rounds,
        stall=stall.name,
        reached=stall.width / step,
        wanted=goal / step,
        rounds_needed=None if needed is None else max(FIRST_ROUNDS, needed) * rounds // sets,
        settles=precision is None and is_settled(breakdown, SETTLING_SECONDS, math.inf),
    )


def _rounds_for(stall: Stall, goal: float, rounds: int) -> int | None:
    """How many rounds bring the interval down to ``goal``, beyond all but the noise; ``None`` if too many to name."""
    return rounds_needed(
        _noise_seconds(stall), math.sqrt(max(0.0, goal**2 - stall.parts.besides_noise**2)), rounds
    )


# What more measuring would bring


def budget_to_decide(breakdown: Breakdown, profile: Profile, claims: Claims) -> float | None:
    """The ``--budget`` in seconds that should decide what is open, or reach the precision that was asked for.

    ``None`` if nothing is to be gained, no time would do, or it is beyond an hour. A round is taken to cost what it
    cost here; never less than five rounds.
    """
    rounds, step, asked = breakdown.repetitions, breakdown.step_seconds, precision_asked(profile)
    if claims.kind == "estimate":
        return _seconds(profile, rounds, FIRST_ROUNDS)
    stalls = [(stall, decisive_width(stall, step)) for stall in claims.open]
    if not stalls and asked is not None:
        stalls = [
            (stall, math.hypot(asked * step, stall.parts.besides_noise))
            for stall in breakdown.stalls
            if _noise_seconds(stall) > asked * step
        ]
    if not stalls or not all(goal > stall.parts.besides_noise for stall, goal in stalls):
        return None
    needed = [_rounds_for(stall, goal, rounds) for stall, goal in stalls]
    known = [count for count in needed if count is not None]
    return _seconds(profile, rounds, max(known)) if len(known) == len(needed) else None


def find_undecidable(breakdown: Breakdown, claims: Claims) -> Stall | None:
    """The open stall that no number of rounds decides: what is not noise alone is too wide; ``None`` without one."""
    step = breakdown.step_seconds
    return next((s for s in claims.open if decisive_width(s, step) <= s.parts.besides_noise), None)


def precision_asked(profile: Profile) -> float | None:
    """A fraction of the step; ``None`` where measuring was to end as soon as the verdict holds."""
    return None if profile.settings.until_decided else profile.settings.precision


def _seconds(profile: Profile, rounds: int, needed: int) -> float | None:
    seconds = max(FIRST_ROUNDS, needed) * spent_seconds(profile) / rounds
    if seconds > LONGEST:
        return None
    unit = 10.0 ** max(1, math.floor(math.log10(max(1.0, seconds))) - 1)
    return math.ceil(seconds / unit) * unit


def spent_seconds(profile: Profile) -> float:
    """What measuring took: the budget, or less if it ended before, or more if a round took longer than that."""
    ends: dict[int, float] = defaultdict(float)
    for block in profile.blocks:
        ends[block.launch] = max(ends[block.launch], block.started + block.seconds)
    measuring = profile.elapsed_seconds - (profile.seconds_before_blocks or 0.0)
    return max(sum(ends.values()), min(profile.settings.budget_seconds, measuring))
