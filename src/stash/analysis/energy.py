"""Joules of a step and of an epoch: the power of the highest rung's blocks times the step's seconds.

Only what was counted (``EnergyUse``), of the leader's machine. Blocks differ in power as rounds differ in time, so
the interval is Student's over blocks, joined with that of the step.
"""

from __future__ import annotations

import math

from stash.analysis.breakdown import Breakdown
from stash.core.intervals import Interval, mean_interval
from stash.core.records.base import Number, Record
from stash.core.records.circumstances import EnergyPart, EnergyUse


class StepEnergy(Record):
    """Of everything that was counted, together."""

    joules: Interval
    """Of a step."""
    watts: Number
    parts: dict[EnergyPart, Number]
    """Joules of a step by what counted them."""
    epoch_joules: Number | None
    """Of an epoch's steps, not of what lies between them."""
    epoch_dollars: Number | None


def step_energy(breakdown: Breakdown, use: EnergyUse | None) -> StepEnergy | None:
    """``None`` where nothing was counted, or not of the rung that the step is measured under."""
    if use is None or not use.joules or use.rung != breakdown.rungs[-1]:
        return None
    step, seconds = breakdown.step, math.fsum(use.seconds)
    parts = {part: math.fsum(blocks) / seconds for part, blocks in use.joules.items()}
    watts = math.fsum(parts.values())
    power = mean_interval(
        [
            math.fsum(block) / took
            for took, *block in zip(use.seconds, *use.joules.values(), strict=True)
        ]
    )
    joules = Interval(value=watts * step.value)
    if power.half_width is not None and step.half_width is not None:
        half = math.hypot(power.half_width * step.value, step.half_width * watts)
        joules = joules.symmetric(half)
    steps = None if breakdown.run is None else breakdown.run.epoch_steps
    epoch = None if steps is None else joules.value * steps
    return StepEnergy(
        joules=joules,
        watts=watts,
        parts={part: each * step.value for part, each in parts.items()},
        epoch_joules=epoch,
        epoch_dollars=dollars_of(epoch, use.dollars_per_kwh),
    )


def dollars_of(joules: float | None, dollars_per_kwh: float | None) -> float | None:
    """``None`` where one of both is unknown."""
    if joules is None or dollars_per_kwh is None:
        return None
    return joules / 3.6e6 * dollars_per_kwh


def gpu_watts(use: EnergyUse | None) -> float | None:
    """What one GPU of the job drew on average; ``None`` where it was not counted."""
    if use is None or "gpus" not in use.joules:
        return None
    return math.fsum(use.joules["gpus"]) / math.fsum(use.seconds) / use.counts["gpus"]
