"""The interval that is printed, the only one there is: all that a measured time may be off by, in one number.

Rounds tell how far steps repeat themselves. They know nothing of what is the same in every round of a launch: the
method's own error, what chance gave this launch, how well a correction is known. These are independent, so their
half-widths add in quadrature. An end beyond what is physically possible is cut back to it; estimates never are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from stash.analysis.breakdown import Parts, Stall
from stash.analysis.step_times import StepTimes
from stash.core.intervals import NORMAL, Interval, mean_interval
from stash.core.records.profile import Profile

SECONDS = {
    "compute": 0.68e-3,
    "contention": 0.0,
    "interconnect": 2.64e-3,
    "network": 1.85e-3,
    "prep": 0.83e-3,
    "fetch": 1.03e-3,
}
"""Half of a 95 % interval per step; 0 where noise explained every error.

Measured on 2026-11-22 by 145 stalls of 40 emulated jobs on 2 cores of AMD EPYC over gloo;
``python -m bench.truth.method_error bench/truth/data/2026-11-22.md`` fits it.
"""
SHARE = 0.01
"""Of the stall, besides."""
LAUNCH_SPREAD = 0.005
"""Standard deviation between launches of one job on one machine, as a share of its step (``bench/comparison.py``)."""
ADDED = ("transfer", "prep", "fetch")
"""Work and waiting that a rung adds: of these there can be nothing, and never less."""
_READ_TO = 0.005
"""Processor times are recorded to three digits."""


def method_error(stall: str, seconds: float) -> float | None:
    """Half of the method's own 95 % interval of a stall that takes ``seconds``; ``None`` if unknown.

    The interpreter's work between layers, copies into buckets, bookkeeping of files: how large that is was seen where
    truth is known. What could not be tried there (``transfer``) stays unknown, and its interval holds noise and
    launch alone.
    """
    fixed = SECONDS.get(stall)
    return None if fixed is None else math.hypot(fixed, SHARE * seconds)


def launch_error(step_seconds: float) -> float:
    """Half of the 95 % interval of what another launch may make of any time of a step."""
    return NORMAL * LAUNCH_SPREAD * step_seconds


def whole_stall(
    name: str, noise: Interval, step_seconds: float, least: float | None = None, correction: float | None = None
) -> Stall:
    """The stall whose rounds say ``noise``, with its whole interval; ``least`` is what it certainly is not below.

    ``correction`` is half of the 95 % interval of what was subtracted from it. ``least`` cuts the lower end only, and
    only where the estimate is not itself below it: what was measured stays as it was measured.
    """
    parts = Parts(
        noise=noise.half_width,
        method=method_error(name, noise.value),
        launch=launch_error(step_seconds),
        correction=correction,
    )
    time = noise.widened(parts.besides_noise)
    if least is not None and time.low is not None and time.low < least <= time.value:
        time = time.model_copy(update={"low": least})
    return Stall(name=name, time=time, share=noise.value / step_seconds, parts=parts)


def least_possible(profile: Profile, kept: StepTimes) -> Mapping[str, float]:
    """Seconds below which a stall cannot be, by its name; what nothing is certain of is left out.

    On CPUs a step cannot take less than its processor time on all of its cores at once, as sure as rounds tell that:
    it is compute's, unless the leader takes longer than the others, or data stalls are what steps waited (what rungs
    differ by otherwise is then in compute too).
    """
    found = dict.fromkeys(ADDED, 0.0)
    lowest = kept.rungs[0]
    cores = {rank.rank: rank.cores for rank in profile.ranks if rank.device == "cpu"}
    blocks = [b for b in profile.blocks if b.rung == lowest and b.round in kept.rounds and not b.interrupted_seconds]
    known: dict[int, list[float]] = defaultdict(list)
    for b in blocks:
        if b.cpu_seconds and b.steps and (each := cores.get(b.rank)):
            known[b.round].append(b.cpu_seconds / b.steps / each)
    if known and sum(map(len, known.values())) == len(blocks) and not (kept.by_waits or kept.leader_is_slow):
        least = mean_interval([sum(ranks) / len(ranks) for ranks in known.values()]).low
        found |= {} if least is None else {"compute": (1 - _READ_TO) * least}
    return found
