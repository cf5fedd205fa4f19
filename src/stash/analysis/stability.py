"""Whether a profile's numbers deserve trust, how far a measurement has come, and what more of it would bring.

Turns the checks of ``stash.core.rounds`` (drift, two modes, spread, rounds) and what hosts report of themselves
(steal time) into warnings, each ending in advice. Changes no number; extrapolates from the rounds at hand, and
believes that the machine goes on as it was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from stash.analysis.breakdown import SampleCounts, Stability, Stall
from stash.analysis.step_times import StepTimes, differ, step_matrix
from stash.core.ladder import STALLS, stall_names
from stash.core.records.profile import Profile
from stash.core.rounds import drift, increments, rounds_needed, spread, two_modes, whole_estimate, widest
from stash.core.units import format_seconds

# What more measuring would bring

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


# Stability

MIN_ROUNDS = 3
STEAL = 0.02
DRIFT = 0.05
SPREAD = 0.10
REPLAY = 0.02
"""Of the step: replayed batches that are slower than fresh ones by less are no matter."""


def stability(
    profile: Profile, kept: StepTimes, stalls: tuple[Stall, ...], samples: SampleCounts | None
) -> Stability:
    """Warnings about the rounds that were measured."""
    warnings = _of_rounds(profile, kept, stalls)
    hosts = [host.steal_fraction for host in profile.hosts if host.steal_fraction is not None]
    blocks = [block.steal for block in profile.blocks if block.steal is not None]
    steal = max([*hosts, float(np.mean(blocks)) if blocks else 0.0])
    if steal > STEAL:
        advice = "profile on a dedicated machine or at a calmer hour"
        warnings.append(f"Other tenants took {steal:.0%} of the CPU time (steal); {advice}.")
    if kept.top_replay is not None and "warm" in kept.rungs:
        # Replayed batches that take longer than fresh ones, beyond the noise, are not the job's.
        (prep,) = increments(np.column_stack([kept.of(kept.top_replay), kept.of("warm")]))
        if prep.below(0.0) and -prep.value > REPLAY * kept.step_seconds:
            warnings.append(
                f"Steps on replayed batches take {format_seconds(-prep.value)} longer than on fresh ones, beyond the "
                "noise: their batches differ, or the machine ran slower meanwhile: compute and exchange are said too "
                "long by about that, and prep too short; profile with batches of one size, or longer."
            )
    if samples is not None and differ((samples.least, samples.most)):
        text = f"Steps differ in samples: {samples.least:.3g} to {samples.most:.3g} a device, and so does their time"
        if differ(samples.per_rung.values()):
            text += ", also from rung to rung, which is no stall"
        warnings.append(f"{text}; keep batch size and accumulation fixed while profiling.")
    else:  # steps of different size drift and vary by themselves
        warnings += _unsteady(kept)
    return Stability(ok=not warnings, warnings=tuple(warnings))


def _of_rounds(profile: Profile, kept: StepTimes, stalls: tuple[Stall, ...]) -> list[str]:
    """Whether there are enough of them, and how many were disturbed."""
    count, found = len(kept.sets), []
    reached, wanted = widest([stall.time for stall in stalls]) / kept.step_seconds, profile.settings.precision
    budget = more_time(budget_for(profile, count, reached if count > 1 else None, wanted))
    if profile.settings.isolated and count < MIN_ROUNDS:
        found.append(
            f"Only {count} of the {MIN_ROUNDS} sets of launches that an interval needs: rounds of one launch share "
            f"what chance gave that launch; {budget}."
        )
    elif count == 1:
        found.append(f"Only one round was measured, so no interval is known; {budget}.")
    elif count < MIN_ROUNDS:
        found.append(f"Only {count} rounds were measured, so intervals are wide; {budget}.")
    elif reached > 1.05 * wanted:
        found.append(
            f"The widest interval is ±{reached:.1%} of the step, not the ±{wanted:.1%} asked for; "
            f"{budget}, or accept it with --precision."
        )
    disturbed = len(kept.disturbed)
    if disturbed:
        found.append(
            f"{disturbed} of {disturbed + len(kept.rounds)} rounds {'was' if disturbed == 1 else 'were'} disturbed, "
            "and what that cost is shared out among all rungs; look for other jobs on the machine."
        )
    return found


def _unsteady(kept: StepTimes) -> list[str]:
    """Drift of the step, two modes of a rung (the lowest that has them), and spread from round to round."""
    found = []
    change = drift(kept.matrix[:, -1])
    if change is not None and abs(change) > DRIFT:
        way, advice = "faster", "it was still warming up; profile longer"
        if change > 0:
            way, advice = "slower", "check for clock throttling, or a neighbour getting busy"
        found.append(
            f"The step became {abs(change):.0%} {way} from the first round to the last; "
            f"{advice} (differences inside a round hold, the total less)."
        )
    # The lowest rung holds all of compute: on CPUs that is the one which elsewhere adds the transfer.
    for name, adds, values in zip(kept.rungs, stall_names(kept.rungs), kept.matrix.T, strict=True):
        modes = two_modes(values)
        if modes is not None:
            slow, fast = format_seconds(modes[1]), format_seconds(modes[0])
            found.append(
                f"The step under {name} takes either {fast} or {slow}, and the mean is neither: "
                f"{adds if adds == STALLS[0] else f'the {adds} stall'} changed; look for a periodic disturbance or "
                "a changing clock or link."
            )
            break
    most, where = max(zip(map(spread, kept.matrix.T), kept.rungs, strict=True), key=lambda pair: pair[0])
    if len(kept.sets) >= MIN_ROUNDS and most > SPREAD:
        found.append(
            f"The step under {where} varies by {most:.0%} from round to round; stop other work on the machine."
        )
    return found


# How far a measurement has come


@dataclass(frozen=True)
class MeasurementProgress:
    """After some complete rounds, disturbed ones included; widths are half-widths as a fraction of the step."""

    rounds: int
    widest: float | None = None
    """Of the widest interval; ``None`` before there are two rounds."""
    rounds_needed: int | None = None
    """In all, until the precision that is wanted, by the spread so far; ``None`` where that is unknown."""

    def seconds_left(self, elapsed: float, budget: float) -> float:
        """Until the budget ends (negative: it has), or the precision is expected earlier; infinite if neither."""
        if self.rounds_needed is None:
            return budget - elapsed
        more = max(0, self.rounds_needed - self.rounds)
        return min(budget - elapsed, more * elapsed / self.rounds)


def standing(profile: Profile) -> MeasurementProgress:
    """Where the measurement of ``profile`` stands against the precision in its settings.

    Judges by the rule that ends the measurement (``core.rounds.precise_enough``), which it does not decide.
    """
    times = step_matrix(profile)
    rounds, sets = len(times.rounds), len(times.sets)
    if sets < 2:
        return MeasurementProgress(rounds)
    *entries, step = whole_estimate(times.matrix)
    half_width = widest(entries) / step.value
    needed = rounds_needed(half_width, profile.settings.precision, sets)
    return MeasurementProgress(
        rounds=rounds,
        widest=half_width if math.isfinite(half_width) else None,
        rounds_needed=None if needed is None else max(MIN_ROUNDS, needed) * rounds // sets,
    )
