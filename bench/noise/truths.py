"""What is true of a recording, and whether an answer agrees: by hand where possible, else by quiet references.

A reference's stalls are differences of its rungs' wall times as they were seen: none of the code that attributes
or corrects is asked. Knows nothing of files or of how profiles are made.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit
from scipy.stats import trim_mean

from bench.truth.suite import LISTED, NO_CAUSE
from stash.analysis.breakdown import Stall
from stash.analysis.step_times import rungs_run
from stash.core.ladder import stall_names
from stash.core.records.profile import Profile

TRIMMED = 0.1
"""Of the rounds of references at each end: the machine was quiet, not dead."""
CLEAR, SLIGHT = 0.08, 0.03
"""Shares of the step: above the first a stall has to be named, below the second it must not be."""
UNCERTAIN = 0.06
"""Of the step: a truth by references of which a stall is known no better is none."""
AS_LARGE = 0.8
"""Of the largest: a stall that may be taken for it."""
Outcome = Literal["right", "partly", "cannot tell", "wrong"]


@dataclass(frozen=True)
class Known:
    """Seconds of a step, known to ± half of a 95 % interval."""

    seconds: float
    half: float = 0.0


@dataclass(frozen=True)
class Truth:
    """The stalls of a job that nothing disturbs; their sum is its step."""

    stalls: Mapping[str, Known]
    cause: tuple[str, ...]
    """What has to be named, the largest first; empty where compute limits it."""
    may: frozenset[str]
    """What may be named."""
    slow_rank: int | None = None

    @property
    def step(self) -> float:
        return sum(known.seconds for known in self.stalls.values())

    @property
    def uncertain(self) -> bool:
        """Whether it is not known well enough to judge by."""
        return any(known.half > UNCERTAIN * self.step for known in self.stalls.values())


def truth_of_case(
    seconds: Mapping[str, float], cause: Sequence[str], slow_rank: int | None
) -> Truth:
    """Of a case of the truth suite."""
    step = sum(seconds.values())
    may = {name for name, value in seconds.items() if value > SLIGHT * step} - {*NO_CAUSE}
    known = {name: Known(value) for name, value in seconds.items()}
    return Truth(known, tuple(cause), frozenset({*cause} | may), slow_rank)


def truth_of_references(profiles: Sequence[Profile], slow_rank: int | None = None) -> Truth | None:
    """Of quiet profiles of the same job; ``None`` if they have no complete round."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    for profile in profiles:
        for name, values in differences(profile).items():
            found[name].append(values)
    if not found:
        return None
    stalls = {name: pool_runs(runs) for name, runs in found.items()}
    step = sum(known.seconds for known in stalls.values())
    order = sorted(
        (name for name in stalls if name not in NO_CAUSE), key=lambda name: -stalls[name].seconds
    )
    least = {name: known.seconds - known.half for name, known in stalls.items()}
    cause = tuple(
        name
        for name in order
        if stalls[name].seconds > CLEAR * step and least[name] > LISTED * step
    )
    may = frozenset(
        name for name in order if stalls[name].seconds + stalls[name].half > SLIGHT * step
    )
    return Truth(stalls, cause, may, slow_rank)


def differences(profile: Profile) -> dict[str, list[float]]:
    """Round by round what each rung adds to a step of the rank that is slowest on average, in seconds."""
    rungs = rungs_run(profile)
    totals: dict[tuple[str, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for block in profile.blocks:
        total = totals[block.rung, block.round, block.rank]
        total[0] += block.seconds
        total[1] += block.steps
    per_rung: dict[str, dict[int, dict[int, float]]] = {name: defaultdict(dict) for name in rungs}
    for (name, number, rank), (seconds, steps) in totals.items():
        if name in per_rung and steps:
            per_rung[name][number][rank] = seconds / steps
    rounds = (
        sorted(set.intersection(*(set(numbers) for numbers in per_rung.values()))) if rungs else []
    )
    columns = []
    for name in rungs:
        ranks = (
            set.intersection(*(set(per_rung[name][number]) for number in rounds))
            if rounds
            else set()
        )
        if not ranks:
            return {}
        slowest = max(
            ranks, key=lambda rank: sum(per_rung[name][number][rank] for number in rounds)
        )
        columns.append([per_rung[name][number][slowest] for number in rounds])
    matrix = np.diff(np.array(columns), axis=0, prepend=0.0)
    return dict(zip(stall_names(rungs), matrix.tolist(), strict=True)) if rungs else {}


def pool_runs(runs: Sequence[Sequence[float]]) -> Known:
    """A trimmed mean over all rounds; its uncertainty from their scatter, or that of the runs if they differ more."""
    values = np.sort(np.concatenate(runs))
    cut = int(TRIMMED * len(values))
    inner = np.clip(values, values[cut], values[len(values) - 1 - cut])
    half = math.inf
    if len(values) > 1 + 2 * cut:
        freedom = len(values) - 2 * cut - 1
        # Tukey and McLaughlin 1963
        scatter = float(inner.std(ddof=1)) / ((1 - 2 * TRIMMED) * math.sqrt(len(values)))
        half = float(stdtrit(freedom, 0.975)) * scatter
    means = [float(trim_mean(run, TRIMMED)) for run in runs]
    return Known(float(trim_mean(values, TRIMMED)), max(half, (max(means) - min(means)) / 2))


# Judging ---------------------------------------------------------------------------------------------------


def error(truth: Truth, stall: Stall) -> float:
    """In seconds: too much if positive."""
    return stall.seconds - truth.stalls[stall.name].seconds


def holds(truth: Truth, stall: Stall) -> bool | None:
    """Whether the interval holds the truth, as far as that is known.

    ``None`` if the stall has no interval.
    """
    if stall.low is None or stall.high is None:
        return None
    off = error(truth, stall)
    arm = stall.seconds - stall.low if off > 0 else stall.high - stall.seconds
    return abs(off) <= math.hypot(arm, truth.stalls[stall.name].half)


def rank_stalls(stalls: Sequence[Stall]) -> list[str]:
    """Those above the noise and worth naming, the largest first."""
    found = [stall for stall in stalls if stall.name not in NO_CAUSE and stall.share > LISTED]
    return [
        stall.name
        for stall in sorted(found, key=lambda stall: -stall.seconds)
        if not stall.within_noise
    ]


def agrees(truth: Truth, names: Collection[str], answer: str | None, rank: int | None) -> bool:
    """Whether an answer is right where references tell, whose stalls have no clear-cut sizes.

    ``names`` are the stalls that the profile ranks, ``answer`` the one its verdict is on, ``rank`` the slow one.
    """
    if truth.slow_rank is not None and rank != truth.slow_rank:
        return False
    if not {*truth.cause} <= {*names} <= truth.may:
        return False
    if not truth.cause:
        return answer == "compute" or answer in truth.may
    largest = truth.stalls[truth.cause[0]].seconds
    return answer in truth.may and truth.stalls[answer].seconds >= AS_LARGE * largest


def outcome(truth: Truth, kind: str, leading: Sequence[str], right: bool) -> Outcome:
    """What a verdict of this kind is worth that names the stalls ``leading`` as certain.

    *Wrong* is one that says with confidence what is not so: a stall that is none, or no stall where there is one.
    *Partly* is true as far as it goes.
    """
    if kind in ("stall", "tie") and not {*leading} <= truth.may:
        return "wrong"
    if kind == "compute" and truth.cause:
        return "wrong"
    if right:
        return "right"
    return "partly" if kind in ("stall", "tie", "compute") else "cannot tell"
