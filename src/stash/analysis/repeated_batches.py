"""Where every round trains on the same batches: what rounds cannot tell, as other batches would take other times.

A stream can but start over, so that the n-th step of a block is of the same batch in every round. By how much steps
differ from place to place, beyond what they differ by from round to round, says how well these batches stand for
all others. Knows nothing of why batches differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stash.core.intervals import student_half_width
from stash.core.levels import Matrix
from stash.core.records.profile import Profile

_FEWEST = 3
"""Batches, of which a spread is known."""


def repeats_batches(profile: Profile) -> bool:
    """Whether all rounds read the same batches."""
    return any(loader.kind != "map" for loader in profile.workload.loaders)


def batch_errors(
    profile: Profile, rungs: Sequence[str], rounds: Sequence[int]
) -> tuple[float, ...]:
    """Half of the 95 % interval of what other batches would take, of the first rung and of what each rung adds.

    In seconds of a step; 0 where rounds read other batches, or too few batches tell.
    """
    if not repeats_batches(profile):
        return (0.0,) * len(rungs)
    steps = [_steps_by_place(profile, name, rounds) for name in rungs]
    places = min(each.shape[1] for each in steps)
    first, *others = (each[:, :places] for each in steps)
    added = [after - before for before, after in zip([first, *others], others, strict=False)]
    return tuple(place_error(each) for each in (first, *added))


def _steps_by_place(profile: Profile, rung: str, rounds: Sequence[int]) -> Matrix:
    """Seconds of steps, ``[round, place]``, of all ranks in the mean; the first, after a pause, is left out."""
    found = []
    for number in rounds:
        blocks = [
            block.step_seconds[1:]
            for block in profile.blocks
            if (block.round, block.rung) == (number, rung)
        ]
        places = min(map(len, blocks), default=0)
        found.append(np.mean([steps[:places] for steps in blocks], axis=0))
    places = min(map(len, found))
    return np.array([steps[:places] for steps in found], dtype=np.float64)


def place_error(steps: Matrix) -> float:
    """Half of the 95 % interval of the mean over places, ``[round, place]``, as a sample of all there could be.

    The variance between places is what their means vary by, less the part of it that is noise of rounds (the
    analysis of variance of two crossed random effects).
    """
    rounds, places = steps.shape
    if rounds < 2 or places < _FEWEST:
        return 0.0
    means = steps.mean(axis=0)
    left = steps - means - steps.mean(axis=1, keepdims=True) + steps.mean()
    noise = float((left**2).sum()) / ((rounds - 1) * (places - 1))
    beyond = float(means.var(ddof=1)) - noise / rounds
    return student_half_width(places, math.sqrt(beyond)) if beyond > 0 else 0.0
