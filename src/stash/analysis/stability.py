"""Whether a profile's numbers deserve trust.

Turns the checks of ``stash.core.rounds`` (drift, two modes, spread, rounds) and what hosts report of themselves
(steal time) into warnings. Changes no number; how much longer to measure is in the verdict, once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stash.analysis.as_typed import AsTyped
from stash.analysis.breakdown import SampleCounts, Stability, Stall
from stash.analysis.step_times import StepTimes, samples_differ
from stash.core.formatting import join_names
from stash.core.ladder import STALLS, stall_names
from stash.core.records.circumstances import GpuState
from stash.core.records.profile import Profile
from stash.core.rounds import drift, increments, spread, two_modes, warming_up
from stash.core.units import format_seconds

# Stability

MIN_ROUNDS = 3
STEAL = 0.02
DRIFT = 0.05
SPREAD = 0.10
GPU_OTHERS = 0.02
"""Of a GPU's time."""
CLOCK_HELD, SLOW_CLOCK = 0.1, 0.8
"""Of the looks at a GPU; and of its highest clock: a power cap is usual under full load, and worth saying below."""
REPLAY = 0.02
"""Of the step: replayed batches that are slower than fresh ones by less are no matter."""


def check_stability(
    profile: Profile,
    kept: StepTimes,
    stalls: tuple[Stall, ...],
    samples: SampleCounts | None,
    typed: AsTyped | None = None,
) -> Stability:
    """Warnings about the rounds that were measured; ``typed`` are first steps that differ from them."""
    warnings = [] if typed is None else [other_job(typed)]
    warnings += _check_rounds(profile, kept, stalls)
    hosts = [host.steal_fraction for host in profile.hosts if host.steal_fraction is not None]
    blocks = [block.steal for block in profile.blocks if block.steal is not None]
    steal = max([*hosts, float(np.mean(blocks)) if blocks else 0.0])
    if steal > STEAL:
        advice = "profile on a dedicated machine or at a calmer hour"
        warnings.append(f"Other tenants took {steal:.0%} of the CPU time (steal); {advice}.")
    # What holds a GPU back shows in no stall: all rungs are slower alike.
    warnings += [
        f"O{text[1:]}; stop them and profile again." for text in shared_gpus(profile.gpu_states)
    ]
    warnings += [f"{text}; compute is longer by that." for text in slowed_gpus(profile.gpu_states)]
    if kept.top_replay is not None and "warm" in kept.rungs:
        # Replayed batches that take longer than fresh ones, beyond the noise, are not the job's.
        (prep,) = increments(
            np.column_stack([kept.column_of(kept.top_replay), kept.column_of("warm")])
        )
        if prep.is_below(0.0) and -prep.value > REPLAY * kept.step_seconds:
            warnings.append(
                f"Steps on replayed batches take {format_seconds(-prep.value)} longer than on fresh ones, beyond the "
                "noise: their batches differ, or the machine ran slower meanwhile: compute and exchange look too "
                "long by about that, and prep too short; profile with batches of one size."
            )
    if samples is not None and samples_differ((samples.least, samples.most)):
        text = f"Steps differ in samples: {samples.least:.3g} to {samples.most:.3g} a device, and so does their time"
        if samples_differ(samples.per_rung.values()):
            text += ", also from rung to rung, which is no stall"
        warnings.append(f"{text}; keep batch size and accumulation fixed while profiling.")
    else:  # steps of different size drift and vary by themselves
        warnings += _list_unsteady(kept)
    return Stability(ok=not warnings, warnings=tuple(warnings))


def shared_gpus(states: Sequence[GpuState]) -> list[str]:
    """Which GPUs other processes used, in words."""
    return [
        f"other processes took {state.others:.0%} of GPU {state.index}'s time"
        for state in states
        if state.others is not None and state.others > GPU_OTHERS
    ]


def slowed_gpus(states: Sequence[GpuState]) -> list[str]:
    """Which GPUs' clocks were held down, and by what, in words."""
    found = []
    for state in states:
        held = {why: share for why, share in state.held_by.items() if share > CLOCK_HELD}
        slow = state.clock is not None and state.clock < SLOW_CLOCK
        if held and (slow or held.keys() & {"heat", "hardware"}):
            at = (
                f" at {state.clock:.0%} of its highest clock"
                if state.clock is not None
                else " at a lower clock"
            )
            found.append(f"GPU {state.index} ran{at}, held down by {join_names(sorted(held))}")
    return found


def other_job(typed: AsTyped) -> str:
    """A sentence on first steps that differ from what was measured."""
    first = typed.first
    longer = "longer" if typed.share > 0 else "less"
    cause = f"; most of it is {typed.cause}" if typed.cause else ""
    return (
        f"The job as it was typed took {format_seconds(first.step.value)} a step in its first {first.steps}, before "
        f"anything was changed: {abs(typed.share):.0%} {longer} than what was measured{cause}."
    )


def _check_rounds(profile: Profile, kept: StepTimes, stalls: tuple[Stall, ...]) -> list[str]:
    """Whether there are enough of them."""
    count = len(kept.sets)
    found = []
    settings = profile.settings
    if settings.isolated and count < MIN_ROUNDS:
        found.append(
            f"Only {count} of the {MIN_ROUNDS} sets of launches that an interval needs: rounds of one launch share "
            "what chance gave that launch."
        )
    elif count == 1:
        found.append("Only one round was measured, so no interval is known.")
    elif count < MIN_ROUNDS:
        found.append(f"Only {count} rounds were measured, so intervals are wide.")
    elif not settings.until_decided:
        noisiest = max(stalls, key=lambda stall: stall.parts.noise or 0.0)
        if (noisiest.parts.noise or 0.0) > 1.05 * settings.precision * kept.step_seconds:
            found.append(
                f"{noisiest.name.capitalize()} is known to ±{noisiest.width / kept.step_seconds:.1%} of the step, "
                f"and ±{settings.precision:.1%} was asked for."
            )
    return found


def _list_unsteady(kept: StepTimes) -> list[str]:
    """Drift of the step, two modes of a rung (the lowest that has them), and spread from round to round."""
    found = []
    change = drift(kept.matrix[:, -1])
    if change is not None and abs(change) > DRIFT:
        way, why = (
            ("slower", "the machine got busier, or its clock lower")
            if change > 0
            else ("faster", "the machine got quieter")
        )
        if warming_up(kept.matrix[:, -1]):
            why = "it was still warming up at first"
        found.append(
            f"The step became {abs(change):.0%} {way} from the first round to the last: {why} (differences inside a "
            "round hold, the total less)."
        )
    # The lowest rung holds all of compute: on CPUs that is the one which elsewhere adds the transfer.
    for name, adds, values in zip(kept.rungs, stall_names(kept.rungs), kept.matrix.T, strict=True):
        modes = two_modes(values)
        if modes is not None:
            slow = format_seconds(modes[1])
            fast = format_seconds(modes[0])
            found.append(
                f"The step under {name} takes either {fast} or {slow}, and the mean is neither: "
                f"{adds if adds == STALLS[0] else f'the {adds} stall'} changed; look for a periodic disturbance or "
                "a changing clock or link."
            )
            break
    most, where = max(
        zip(map(spread, kept.matrix.T), kept.rungs, strict=True), key=lambda pair: pair[0]
    )
    if len(kept.sets) >= MIN_ROUNDS and most > SPREAD:
        found.append(f"The step under {where} varies by {most:.0%} from round to round.")
    return found
