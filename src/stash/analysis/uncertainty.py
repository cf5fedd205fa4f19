"""The interval that is printed, the only one there is: all that a measured time may be off by, in one number.

Rounds tell how far steps repeat themselves. They know nothing of what is the same in every round of a launch: the
method's own error, what chance gave this launch, how well a correction is known. These are independent, so their
half-widths add in quadrature. An end below nothing is cut back to it where less is impossible; estimates never are.
"""

from __future__ import annotations

import math

from stash.analysis.breakdown import Parts, Stall
from stash.core.intervals import NORMAL, Interval

SECONDS = {
    "compute": 0.68e-3,
    "contention": 0.0,
    "interconnect": 2.64e-3,
    "network": 1.85e-3,
    "prep": 0.83e-3,
    "fetch": 1.03e-3,
}
"""Half of a 95 % interval per step; 0 where noise explained every error.

Measured on 2026-11-22 by 145 stalls of 40 emulated jobs, with steps of 50 to 350 ms, on 2 cores of AMD EPYC over gloo.
"""
STEP_SHARE = 0.08
"""Of the step: the most that those seconds may be. In jobs that really compute, with steps of 2 to 15 ms, 34 of 38 rows
were within that of their stopwatch, noise included (2026-11-30, ``python -m bench.truth.computing``)."""
SHARE = 0.01
"""Of the stall, besides."""
LAUNCH_SPREAD = 0.005
"""Standard deviation between launches of one job on one machine, as a share of its step (``bench/comparison.py``)."""

ADDED = ("transfer", "prep", "fetch")
"""Work and waiting that a rung adds: of these there can be nothing, and never less."""


def method_error(stall: str, seconds: float, step_seconds: float) -> float | None:
    """Half of the method's own 95 % interval of a stall that takes ``seconds`` of a step; ``None`` if unknown.

    The interpreter's work between layers, copies into buckets, bookkeeping of files: how large that is was seen where
    truth is known. What could not be tried there (``transfer``) stays unknown, and its interval holds noise and
    launch alone.
    """
    fixed = SECONDS.get(stall)
    if fixed is None:
        return None
    return math.hypot(min(fixed, STEP_SHARE * step_seconds), SHARE * seconds)


def launch_error(step_seconds: float) -> float:
    """Half of the 95 % interval of what another launch may make of any time of a step."""
    return NORMAL * LAUNCH_SPREAD * step_seconds


def whole_stall(
    name: str, noise: Interval, step_seconds: float, correction: float | None = None
) -> Stall:
    """The stall whose rounds say ``noise``, with its whole interval.

    ``correction`` is half of the 95 % interval of what was subtracted from it.
    """
    parts = Parts(
        noise=noise.half_width,
        method=method_error(name, noise.value, step_seconds),
        launch=launch_error(step_seconds),
        correction=correction,
    )
    time = noise.add_error(parts.besides_noise)
    if name in ADDED and time.low is not None and time.low < 0.0 <= time.value:
        time = time.model_copy(update={"low": 0.0})
    return Stall(name=name, time=time, share=noise.value / step_seconds, parts=parts)
