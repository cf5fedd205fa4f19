"""How far a measurement has come: its rounds, the precision reached, and when it may end. For live progress.

Judges by the rule that ends the measurement (``base.stats.rounds.precise_enough``), which it does not decide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.base.records import Profile
from stash.base.stats.rounds import rounds_needed, whole_estimate, widest
from stash.derive.stalls.stability import MIN_ROUNDS
from stash.derive.stalls.step_times import step_matrix


@dataclass(frozen=True)
class Standing:
    """After some complete rounds, disturbed ones included; widths are half-widths as a fraction of the step."""

    rounds: int
    widest: float | None = None
    """Of the widest interval; ``None`` before there are two rounds."""
    rounds_needed: int | None = None
    """In all, until the precision that is wanted, by the spread so far; ``None`` where it cannot be told."""

    def seconds_left(self, elapsed: float, budget: float) -> float:
        """Until the budget ends (negative: it has), or the precision is expected earlier; infinite if neither."""
        if self.rounds_needed is None:
            return budget - elapsed
        more = max(0, self.rounds_needed - self.rounds)
        return min(budget - elapsed, more * elapsed / self.rounds)


def standing(profile: Profile) -> Standing:
    """Where the measurement of ``profile`` stands against the precision in its settings."""
    times = step_matrix(profile)
    rounds, sets = len(times.rounds), len(times.sets)
    if sets < 2:
        return Standing(rounds)
    *entries, step = whole_estimate(times.matrix)
    half_width = widest(entries) / step.value
    needed = rounds_needed(half_width, profile.settings.precision, sets)
    return Standing(
        rounds=rounds,
        widest=half_width if math.isfinite(half_width) else None,
        rounds_needed=None if needed is None else max(MIN_ROUNDS, needed) * rounds // sets,
    )
