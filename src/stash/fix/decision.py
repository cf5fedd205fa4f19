"""How sure a saving is: rounds in which every arm was launched once, and intervals that hold over the whole search.

An *arm* is a set of changes; in a round each arm is launched once, so that what drifts is shared. The deviation of a
launch is pooled over all arms and rounds, as a share of the arm's step: of the additive model *step = round + arm*,
with (rounds - 1)(arms - 1) degrees of freedom (a randomised block design); of few, what drifts from round to round is
left in it, which gives more of them and errs on the safe side. One error rate holds for everything: it is
divided by the number of statements, and shared out in advance to the looks at which they may be made (Bonferroni), so
it does not matter how many are made, nor when measuring stops.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stash.core.distributions import student_quantile
from stash.core.intervals import Interval

ERROR_RATE = 0.05
"""Of the whole search."""
SPENT = {3: 0.3, 4: 0.1, 5: 0.15, 6: 0.1, 8: 0.15, 10: 0.1, 12: 0.1}
"""By rounds of the final comparison after which it may end, the share of the error rate that is spent there."""
LOOKS = tuple(SPENT)
ARMS = 2
"""Of a final comparison at least."""
SCREENED = 2
"""Rounds of launches that show whether a change goes on to be proven."""
WORTH = 0.01
"""Of the step: the smallest saving that is worth a change."""

_FEW = 6
"""Degrees of freedom below which rounds are not taken out of the deviation: by counts, not by what is seen."""

Round = Mapping[Any, float]
"""By arm, whatever names it, the step's seconds."""


@dataclass(frozen=True)
class Spread:
    """Standard deviation of one launch's step, as a share of it, and its degrees of freedom."""

    share: float
    freedom: int


def pool_spread(stages: Sequence[Sequence[Round]]) -> Spread | None:
    """The spread of launches over all ``stages``, each some rounds; ``None`` where no arm was launched twice.

    Of rounds that lack an arm, only arms are used that all rounds of the stage have.
    """
    blocked = _pool_stages(stages, by_round=True)
    few = blocked is not None and blocked.freedom < _FEW
    return _pool_stages(stages, by_round=False) if few else blocked


def _pool_stages(stages: Sequence[Sequence[Round]], by_round: bool) -> Spread | None:
    squares = 0.0
    freedom = 0
    for rounds in stages:
        arms = sorted(set.intersection(*(set(each) for each in rounds))) if rounds else []
        if len(rounds) < 2 or len(arms) < 2:
            continue
        logs = np.log(np.array([[each[arm] for arm in arms] for each in rounds]))
        rest = logs - logs.mean(axis=0)
        if by_round:
            rest -= logs.mean(axis=1, keepdims=True) - logs.mean()
        squares += float((rest**2).sum())
        freedom += (len(rounds) - 1) * (len(arms) - by_round)
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else None


def estimate_saving(
    rounds: Sequence[Round],
    slow: Any,
    fast: Any,
    spread: Spread | None,
    level: float,
    doubt: float = 0.0,
) -> Interval:
    """Seconds that ``fast`` saves against ``slow``, with a two-sided interval of error rate ``level``.

    ``doubt``: half-width of what is not known of both arms alike, like what strangers cost. No interval without a
    spread.
    """
    both = [(each[slow], each[fast]) for each in rounds if slow in each and fast in each]
    before, after = (float(np.mean(column)) for column in zip(*both, strict=True))
    value = before - after
    if spread is None or spread.freedom < 1:
        return Interval(value=value, repetitions=len(both))
    error = spread.share * math.hypot(before, after) / math.sqrt(len(both))
    half = math.hypot(float(student_quantile(spread.freedom, 1 - level / 2)) * error, doubt)
    return Interval(value=value, low=value - half, high=value + half, repetitions=len(both))


def look_error_rate(statements: int, look: int) -> float:
    """The error rate of one statement at the look after so many rounds."""
    return ERROR_RATE / max(1, statements) * SPENT[look]


def is_proven(interval: Interval | None, least: float = 0.0) -> bool:
    """Whether it is shown that more than ``least`` seconds are saved."""
    return interval is not None and interval.low is not None and interval.low > least
