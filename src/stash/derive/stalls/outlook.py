"""What more measuring would tell: the budget at which an interval is as narrow as wanted.

Extrapolates from the rounds at hand, and believes that the machine goes on as it was. It promises no stall's size.
"""

from __future__ import annotations

import math
from collections import defaultdict

from stash.base.records import Profile
from stash.base.stats.rounds import rounds_needed

FIRST_ROUNDS = 5
"""Asked for at least, as fewer tell little of the spread: from here on Student's quantile is below 3."""
LONGEST = 3600.0
"""Seconds of ``--budget`` beyond which a calmer machine is the better advice."""


def budget_for(profile: Profile, rounds: int, half_width: float | None, wanted: float) -> float | None:
    """The ``--budget`` in seconds that should narrow ``half_width``, known from ``rounds``, to ``wanted``.

    A half-width is t·s/√n for n rounds of spread s, so it shrinks with the root of the rounds, and a little more
    while Student's quantile t still falls. Longer blocks instead of more rounds do the same, as their spread
    shrinks with the root of their length. A round is taken to cost what it cost here. Never less than five
    rounds, which are also asked for after a single one (``half_width`` is ``None``). ``None`` beyond an hour.
    """
    needed = FIRST_ROUNDS if half_width is None else rounds_needed(half_width, wanted, rounds)
    seconds = math.inf if needed is None else max(FIRST_ROUNDS, needed) * spent_seconds(profile) / rounds
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


def more_time(budget: float | None) -> str:
    """What to do for it: ``"profile again with --budget 270"``."""
    if budget is None:
        return "not even --budget 3600 would be enough as it is: stop other work on the machine and profile again"
    return f"profile again with --budget {budget:g}"
