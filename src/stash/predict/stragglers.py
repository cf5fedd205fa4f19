"""What it costs that a step ends with its slowest rank: the expected maximum over more ranks than were measured.

Ranks that exchange gradients wait for the slowest of each step. The mean of the slowest of n ranks grows with n, and
four ranks say little of sixty-four: so it comes from the spread of single steps, taken as normal. Ranks are taken as
alike and independent; a machine that is slow all the time is contention, not this.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import numpy as np

from stash.core.distributions import normal_quantile
from stash.core.measured import Block
from stash.core.records.profile import Profile
from stash.predict.draws import Array, Draws

GROWN_SPREAD = 0.070
"""Standard deviation of a step on GPUs, as a fraction of it, for each doubling of the ranks that were measured, and
what the exchange is off by comes on top: of published steps, widened as they are of three sources
(``bench.predict.published``, archived)."""
MIN_STEPS = 20
"""Single steps of all ranks together, below which their spread is not worth a number."""
_NODES = 64
"""Points of the integral over the distribution's tail."""


@lru_cache(maxsize=256)
def expected_maximum(ranks: int) -> float:
    """Of so many independent standard normal numbers: 0 for one, 0.564 for two, 2.344 for sixty-four.

    E[max] = ∫₀¹ Φ⁻¹(u^(1/n)) du, by Gauss and Legendre's rule; within 0.2 % up to 16,384 ranks.
    """
    if ranks == 1:
        return 0.0
    points, weights = np.polynomial.legendre.leggauss(_NODES)
    chances = (points + 1) / 2
    return float(weights @ normal_quantile(np.exp(np.log(chances) / ranks)) / 2)


def single_steps(profile: Profile) -> Array:
    """Every rank's single steps under *crowd* less its own block's mean, ``[steps]`` in seconds; empty if unknown.

    On a GPU the host's clock tells when steps were enqueued and not how long they took; there blocks are compared
    with their rank's mean instead, and with the root of their length, since noise of single steps averages out.
    """
    blocks = [block for block in profile.blocks if block.rung == "crowd" and block.steps > 0]
    if profile.is_on_cpu:
        deviations = [
            np.asarray(block.step_seconds) - np.mean(block.step_seconds)
            for block in blocks
            if block.step_seconds
        ]
        # A block's mean is one of its own steps' too: the spread around it is too small by that.
        widened = [
            steps * np.sqrt(len(steps) / (len(steps) - 1)) for steps in deviations if len(steps) > 1
        ]
        return np.concatenate(widened) if widened else np.empty(0)
    of_rank: dict[int, list[Block]] = defaultdict(list)
    for block in blocks:
        of_rank[block.rank].append(block)
    deviations = []
    for own in of_rank.values():
        if len(own) < 2:
            continue
        means = np.array([block.seconds / block.steps for block in own])
        lengths = np.array([block.steps for block in own])
        deviations.append((means - means.mean()) * np.sqrt(lengths * len(own) / (len(own) - 1)))
    return np.concatenate(deviations) if deviations else np.empty(0)


class MoreRanks:
    """What steps of one profile's job take longer on more ranks than were measured; asked often, worked out once."""

    def __init__(self, profile: Profile, step_seconds: float, draws: Draws) -> None:
        self._steps, self._step_seconds, self._draws = single_steps(profile), step_seconds, draws
        self.waiting = lru_cache(maxsize=None)(self._extra_wait)
        """Seconds a step that ranks wait longer for their slowest than as many before, ``[draws]``."""
        self.doubt = lru_cache(maxsize=None)(self._doubt)
        """Seconds that a step of NCCL's on more ranks than measured is off by, ``[draws]``; their mean is 0, and none of
        them takes all of a step."""

    @property
    def is_known(self) -> bool:
        """Whether enough single steps were measured to tell what ranks wait for their slowest."""
        return len(self._steps) >= MIN_STEPS

    def _extra_wait(self, before: int, after: int) -> Array:
        """None at all where too few single steps were measured to tell."""
        if before == after or not self.is_known:
            return np.zeros(self._draws.count)
        later = expected_maximum(after) - expected_maximum(before)
        return np.full(self._draws.count, later * float(self._steps.std(ddof=1)))

    def _doubt(self, before: int, after: int) -> Array:
        """By the root of the doublings as if each were off by itself; beyond two by each of them, as all are alike:
        MLPerf Training 5.1 loses 4 to 14 % in each from 8 to 576 GPUs."""
        doublings = np.log2(after / before) if 1 < before < after else 0.0
        times = np.sqrt(doublings * max(1.0, doublings / 2))
        factors = np.exp(GROWN_SPREAD * times * self._draws.normals("step of more ranks"))
        off: Array = (factors / factors.mean() - 1) * self._step_seconds
        return off
