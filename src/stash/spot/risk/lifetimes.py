"""How long a spot machine lives: a law of lifetimes from a stated rate, or from machines that were watched.

A machine that was still there when it was last seen is right-censored, never dropped. Machines of some clouds die
early or near a limit (GCP's, bathtub-shaped: Kadupitiya, Jadhao and Sharma, HPDC 2020), so a law is taken only where
what was watched does not refuse it: memoryless, else Weibull, else just as it was watched (Kaplan and Meier 1958).
Times are in seconds. Knows no jobs and no prices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import stats
from scipy.integrate import simpson
from scipy.optimize import brentq
from scipy.special import chdtrc, gamma

from stash.core.units import MONTH_HOURS
from stash.predict.draws import Array, Bools
from stash.spot.records.risks import InterruptionBand, LawName

HOUR = 3600.0
_REFUSED = 0.05
"""Below this probability of such a record under a law, the law is refused."""
_BIN = 5
"""Revocations that a stretch of ages needs at least, so that χ² is near enough."""
_BINS = 6
_NEVER_SEEN = math.log(20)
"""Revocations per exposure without any: the upper end of the one-sided 95 % interval."""
_STEEPEST = 100.0
"""Shape of a Weibull law: all lives within a few per cent of each other."""
_NEGLIGIBLE = 1e-9
_STEPS = 40_001


class LifeLaw(Protocol):
    """A distribution of lifetimes."""

    @property
    def name(self) -> LawName: ...

    @property
    def mean(self) -> float:
        """Seconds."""
        ...

    def survival(self, seconds: Array) -> Array:
        """P(life > t), elementwise."""
        ...

    def drawn(self, uniforms: Array) -> Array:
        """Lives whose survival is ``uniforms``, from 0 to 1 exclusive: longer ones for smaller ones."""
        ...


@dataclass(frozen=True)
class Memoryless:
    """Exponential: revoked at the same rate at any age."""

    rate: float
    """Revocations a second; 0: never."""
    name: LawName = "memoryless"

    @property
    def mean(self) -> float:
        return 1 / self.rate if self.rate else math.inf

    def survival(self, seconds: Array) -> Array:
        return np.exp(-self.rate * seconds)

    def drawn(self, uniforms: Array) -> Array:
        return -np.log(uniforms) / self.rate if self.rate else np.full(np.shape(uniforms), np.inf)


NEVER = Memoryless(0.0)
"""The life of a machine that is never revoked."""


@dataclass(frozen=True)
class WeibullLife:
    """S(t) = exp(−(t / scale) ^ shape): below a shape of 1 the young are revoked more, above it the old."""

    shape: float
    scale: float
    name: LawName = "Weibull"

    @property
    def mean(self) -> float:
        return self.scale * float(gamma(1 + 1 / self.shape))

    def survival(self, seconds: Array) -> Array:
        return np.exp(-((seconds / self.scale) ** self.shape))

    def drawn(self, uniforms: Array) -> Array:
        return self.scale * (-np.log(uniforms)) ** (1 / self.shape)


@dataclass(frozen=True, eq=False)
class WatchedLife:
    """Kaplan and Meier's estimate: falls where a machine was revoked.

    What comes after the longest one that was watched is unknown; from there on it is taken as memoryless, at the
    record's mean rate.
    """

    times: Array
    """At which a machine was revoked, ascending: [time]."""
    left: Array
    """P(life > time): [time]."""
    rate: float
    """Beyond the last time."""
    name: LawName = "Kaplan-Meier"

    @property
    def mean(self) -> float:
        steps = np.diff(np.concatenate([[0.0], self.times]))
        before = np.concatenate([[1.0], self.left[:-1]])
        return float(steps @ before) + float(self.left[-1]) / self.rate

    def survival(self, seconds: Array) -> Array:
        at = np.searchsorted(self.times, seconds, side="right")
        known = np.concatenate([[1.0], self.left])[at]
        found: Array = known * np.exp(-self.rate * np.maximum(seconds - self.times[-1], 0))
        return found

    def drawn(self, uniforms: Array) -> Array:
        at = np.searchsorted(-self.left, -uniforms, side="left")
        inside = self.times[np.minimum(at, len(self.times) - 1)]
        last = float(self.left[-1])
        beyond = self.times[-1] - np.log(uniforms / last) / self.rate if last else inside
        return np.where(at < len(self.times), inside, beyond)


@dataclass(frozen=True, eq=False)
class ObservedLives:
    """Machines that were watched: for how long, and whether it was a revocation that ended it."""

    seconds: Array
    """[machine], each above 0."""
    revoked: Bools

    @property
    def revocations(self) -> int:
        return int(self.revoked.sum())

    @property
    def rate(self) -> float:
        """Revocations a second of being there: the memoryless law's estimate by maximum likelihood."""
        return self.revocations / float(self.seconds.sum())


@dataclass(frozen=True)
class ChosenLaw:
    """A law, and the sentence that says why this one."""

    law: LifeLaw
    why: str


def runs_of(machines: Sequence[int], gap: float, most: int) -> ObservedLives:
    """Lives in a record of machines obtainable per tick, of the first ``most`` of them.

    The k-th machine lives for as long as k or more could be had. What began before the record is counted from its
    first tick, and what lasts beyond it is censored. Nothing is left of a record in which there never was one.
    """
    there = np.array(machines)[None, :] >= np.arange(1, most + 1)[:, None]
    edges = np.diff(np.pad(there, ((0, 0), (1, 1))).astype(int), axis=1)
    begins, ends = np.argwhere(edges == 1), np.argwhere(edges == -1)
    return ObservedLives((ends[:, 1] - begins[:, 1]).astype(float) * gap, ends[:, 1] < len(machines))


def law_of(lives: ObservedLives) -> ChosenLaw:
    """The simplest law that ``lives``, one at least, do not refuse."""
    count = lives.revocations
    if count == 0:
        hours = float(lives.seconds.sum()) / HOUR
        rate = _NEVER_SEEN / float(lives.seconds.sum())
        return ChosenLaw(
            Memoryless(rate),
            f"none was revoked in {hours:,.0f} h; taken as memoryless at the most that this allows, "
            f"{rate * HOUR:.2g} an hour",
        )
    memoryless = Memoryless(lives.rate)
    if count < 2 * _BIN:
        return ChosenLaw(
            memoryless, f"{count} revocations are too few to tell whether age matters; taken as memoryless"
        )
    doubt = refusal(lives, memoryless, 1)
    if doubt >= _REFUSED:
        return ChosenLaw(memoryless, f"{count} revocations do not refuse that age does not matter (p = {doubt:.2f})")
    weibull = weibull_of(lives)
    refused = f"{count} revocations refuse that age does not matter (p = {doubt:.2g})"
    if refusal(lives, weibull, 2) >= _REFUSED:
        who = "the young" if weibull.shape < 1 else "the old"
        return ChosenLaw(weibull, f"{refused}: {who} are revoked more, Weibull of shape {weibull.shape:.2f}")
    return ChosenLaw(kaplan_meier(lives), f"{refused}, and Weibull too; lives are drawn as they were watched")


def law_of_band(band: InterruptionBand) -> ChosenLaw:
    """Memoryless, for a stated rate tells no more; a band counts with its upper end."""
    if band.low == band.high:
        return ChosenLaw(Memoryless(band.high / HOUR), f"stated: {_share(band.high)}; taken as memoryless")
    ends = f"{_share(band.low)} to {_share(band.high)}"
    return ChosenLaw(Memoryless(band.high / HOUR), f"stated: {ends}; taken as memoryless at the upper end")


def _share(rate: float) -> str:
    """A rate per hour, as the share of machines that go in a month where it is low, as clouds state it."""
    monthly = -math.expm1(-rate * MONTH_HOURS)
    return f"{100 * monthly:.2g}% a month" if monthly < 0.5 else f"{rate:.2g} an hour"


def weibull_of(lives: ObservedLives) -> WeibullLife:
    """The likeliest law, of one revocation at least: Σ tᵏ ln t / Σ tᵏ − 1 / k is the mean ln t of the revoked.

    After Cohen (Technometrics 7(4), 1965). The left side rises with the shape k: one root, within bounds far off.
    """
    longest = float(lives.seconds.max())
    ages = lives.seconds / longest
    logs = np.log(ages)

    def above(shape: float) -> float:
        weights = ages**shape
        return float(weights @ logs / weights.sum() - 1 / shape - logs[lives.revoked].mean())

    shape = _STEEPEST if above(_STEEPEST) <= 0 else brentq(above, 1 / _STEEPEST, _STEEPEST)
    return WeibullLife(shape, longest * float((ages**shape).sum() / lives.revocations) ** (1 / shape))


def kaplan_meier(lives: ObservedLives) -> WatchedLife:
    """The product-limit estimate, of one revocation at least."""
    found = stats.ecdf(stats.CensoredData.right_censored(lives.seconds, ~lives.revoked)).sf
    falls = np.diff(found.probabilities, prepend=1.0) < 0
    return WatchedLife(found.quantiles[falls], found.probabilities[falls], lives.rate)


def refusal(lives: ObservedLives, law: LifeLaw, fitted: int) -> float:
    """P(a record that differs from ``law`` at least as much): the p value of a likelihood-ratio test.

    A life t that follows S has −ln S(t) exponential with rate 1. Ages, so stretched, are cut where equally many were
    revoked, and a rate for each stretch is held against one for all: 2 Σ d ln((d / e) / (D / E)) is χ² with as many
    degrees of freedom as there are stretches less ``fitted`` parameters. 1 where too few were revoked for two.
    """
    with np.errstate(divide="ignore"):
        stretched = -np.log(law.survival(lives.seconds))
    ended = stretched[lives.revoked]
    bins = min(_BINS, lives.revocations // _BIN)
    inner = np.quantile(ended, np.arange(1, bins) / bins, method="higher") if bins > 1 else np.array([])
    edges = np.unique(np.concatenate([[0.0], inner, [stretched.max()]]))
    freedom = len(edges) - 1 - fitted
    if freedom < 1:
        return 1.0
    exposed = np.diff(np.minimum(stretched[:, None], edges[None, :]).sum(axis=0))
    seen = np.diff(np.searchsorted(np.sort(ended), edges, side="right"))
    seen, exposed = seen[exposed > 0], exposed[exposed > 0]
    ratios = np.where(seen > 0, seen, 1) / exposed / (seen.sum() / exposed.sum())
    return float(chdtrc(freedom, 2 * float(seen @ np.log(ratios))))


@dataclass(frozen=True)
class Gang:
    """Machines of which the first revocation stops all; each restart is taken to begin all of them afresh.

    That is exact where they are memoryless.
    """

    members: tuple[tuple[LifeLaw, int], ...]
    """Laws, and how many machines live by each."""
    shocks: float = 0.0
    """Revocations a second that take a whole pool at once, of all pools together."""

    @property
    def rate(self) -> float | None:
        """Revocations a second; ``None`` where that depends on age."""
        rates = [law.rate * count for law, count in self.members if isinstance(law, Memoryless)]
        return sum(rates) + self.shocks if len(rates) == len(self.members) else None

    @property
    def mean(self) -> float:
        """Seconds until the first is revoked: ∫ S(t) dt."""
        if self.rate is not None:
            return 1 / self.rate if self.rate else math.inf
        ages = np.linspace(0, self.longest(_NEGLIGIBLE), _STEPS)
        return float(simpson(self.survival(ages), x=ages))

    def survival(self, seconds: Array) -> Array:
        """P(all are still there), elementwise."""
        found = np.exp(-self.shocks * seconds)
        for law, count in self.members:
            found = found * law.survival(seconds) ** count
        return found

    def longest(self, survival: float) -> float:
        """The age that a gang reaches with a probability of ``survival`` at most."""
        at = np.array([survival])
        ends = [float(law.drawn(at ** (1 / count))[0]) for law, count in self.members]
        return min([*ends, -math.log(survival) / self.shocks if self.shocks else math.inf])

    def drawn(self, generator: np.random.Generator, count: int) -> Array:
        """So many lives of the gang."""
        lives = [law.drawn(generator.random(count) ** (1 / many)) for law, many in self.members]
        if self.shocks:
            lives.append(generator.exponential(1 / self.shocks, count))
        found: Array = np.min(lives, axis=0)
        return found
