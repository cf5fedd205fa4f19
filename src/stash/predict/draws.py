"""Uncertain numbers: a quantity with its spread, origin and date, and its Monte Carlo draws, ``[draws]``."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from stash.core.distributions import normal_quantile
from stash.core.errors import StashError
from stash.core.formatting import Unit, format_fact
from stash.core.intervals import Interval, is_within
from stash.core.records.base import Record
from stash.core.units import format_bits

Origin = Literal["given", "measured", "scaled", "data sheet"]
"""*given*: what the user asked for, taken as exact. *measured*: on machines as they are forecast. *scaled*: measured
elsewhere, and brought here by a model. *data sheet*: published, by a vendor or by somebody who measured."""
ORIGINS: tuple[Origin, ...] = ("given", "measured", "scaled", "data sheet")
"""From the most certain to the least."""


class Quantity(Record):
    """A number in base units with the ends of its 95 % interval, both ``None`` if its spread is unknown.

    What the user asks for (``--network 100gbit``) is one too, exact by definition; what is unknown is ``None``.
    """

    value: float
    low: float | None = None
    high: float | None = None
    origin: Origin
    as_of: str | None = None
    """ISO date of the measurement or the publication; ``None`` if undated."""
    source: str
    """Who says so: a file, a data sheet, an option."""

    @model_validator(mode="after")
    def _check_ends(self) -> Quantity:
        if not is_within(self.value, self.low, self.high):
            raise StashError(
                f"{self.value:g} is not between {self.low} and {self.high} ({self.source})"
            )
        return self

    @property
    def interval(self) -> Interval:
        return Interval(value=self.value, low=self.low, high=self.high)

    @property
    def has_spread(self) -> bool:
        return self.low is not None or self.origin == "given"

    def scale(
        self, factor: float, origin: Origin | None = None, source: str | None = None
    ) -> Quantity:
        """The same times a positive ``factor``; from then on of ``origin`` and ``source``, if these are given."""
        new = self.interval.scale(factor)
        ends = {"value": new.value, "low": new.low, "high": new.high}
        return self.model_copy(
            update={**ends, "origin": origin or self.origin, "source": source or self.source}
        )


def least_certain(origins: Iterable[Origin]) -> Origin:
    """The least certain of some origins, one at least."""
    return max(origins, key=ORIGINS.index)


def measured_quantity(interval: Interval, as_of: str | None, source: str) -> Quantity:
    """A measured interval as a quantity."""
    return Quantity(
        value=interval.value,
        low=interval.low,
        high=interval.high,
        origin="measured",
        as_of=as_of,
        source=source,
    )


def given_quantity(value: float, option: str) -> Quantity:
    """What the user asked for with ``option``."""
    return Quantity(value=value, origin="given", source=option)


class Used(Record):
    """A fact that a part of a forecast rests on."""

    about: str
    """What it is a fact about, e.g. ``bandwidth between nodes``."""
    unit: str
    """``bytes/s``, ``1/s``, ``seconds``, ``bytes``, ``samples/s``, ``fraction`` or ``count``."""
    quantity: Quantity


def why_no_interval(facts: Iterable[Used]) -> str | None:
    """Why a number that rests on these has no interval, and what gives it one; ``None`` if all have their ends.

    A clause that names the first fact without ends.
    """
    for fact in facts:
        if not fact.quantity.has_spread:
            was_measured = fact.quantity.origin in ("measured", "scaled")
            what = "was measured once" if was_measured else "was published without a spread"
            return f"no interval, as {fact.about} {what} ({fact.quantity.source}): profile there"
    return None


_MAX_SOURCE = 90
"""Characters of a source in a line."""


def fact_text(fact: Used) -> str:
    """``"bandwidth between nodes 10 Gbit/s (data sheet: karpenter-aws, 2026-11-20)"``."""
    source = fact.quantity.source
    short = source if len(source) <= _MAX_SOURCE else source[: _MAX_SOURCE - 2] + " …"
    dated = (
        f", {fact.quantity.as_of}"
        if fact.quantity.as_of and fact.quantity.as_of not in short
        else ""
    )
    return f"{fact.about} {_value_text(fact)} ({fact.quantity.origin}: {short}{dated})"


def _value_text(fact: Used) -> str:
    found = fact.quantity
    value, *ends = (
        None if end is None else _format_plain(end, fact)
        for end in (found.value, found.low, found.high)
    )
    if None in ends or ends[0] == ends[1]:
        return value or "unknown"
    return f"{value} ({ends[0]} to {ends[1]})"


def _format_plain(value: float, fact: Used) -> str:
    unit = fact.unit
    if unit == "bytes/s" and "between nodes" in fact.about:
        return format_bits(value)
    known: dict[str, Unit] = {
        "bytes/s": "bytes/s",
        "seconds": "seconds",
        "bytes": "bytes",
        "fraction": "fraction",
    }
    return format_fact(value, known[unit]) if unit in known else f"{value:.3g}"


# Draws

Array: TypeAlias = NDArray[np.float64]
"""Of draws, ``[draws]``, or of something for each draw, ``[draws, …]``."""

COUNT = 256
"""Draws of a forecast: ``python -m bench.predict.draws`` shows what more or fewer do to ends and to time."""
SEED = 14
_NORMAL = 1.959964
"""Half-width of a 95 % interval in standard deviations."""
OUTSIDE = 0.025
"""Of the draws, beyond each end of an interval."""


@dataclass(frozen=True)
class Draws:
    """So many draws from one seed, for Monte Carlo.

    What comes out of a model has the uncertainty of what went in, through whatever maximum or sum lies between. A
    name has the same draws wherever it is used and whatever its value is: forecasts that differ in one fact differ by
    that fact alone, so sweeps are smooth, and what is monotone draw by draw is monotone.
    """

    count: int = COUNT
    seed: int = SEED

    @lru_cache(maxsize=256)  # noqa: B019  # equal ones share it, and there are few
    def uniforms(self, name: str) -> Array:
        """Between 0 and 1, evenly spread and in an order of ``name``'s own: ``[draws]``, not to be written to.

        Stratified (McKay, Beckman, Conover 1979): one draw in each of ``count`` equal parts of the interval, at its
        middle. Means and ends then need far fewer draws than if they fell anywhere.
        """
        order = np.random.default_rng([self.seed, zlib.crc32(name.encode())]).permutation(
            self.count
        )
        drawn: Array = (order + 0.5) / self.count
        drawn.setflags(write=False)
        return drawn

    @lru_cache(maxsize=256)  # noqa: B019
    def normals(self, name: str) -> Array:
        """Standard normal, evenly spread likewise: ``[draws]``, not to be written to."""
        drawn: Array = normal_quantile(self.uniforms(name))
        drawn.setflags(write=False)
        return drawn

    def draw(self, name: str, quantity: Quantity | Interval) -> Array:
        """A number with its interval as draws: normal, each side with its own width.

        Between positive ends it is the logarithm that is so, so that no draw of a rate or a time is negative. Without
        known ends every draw is the value.
        """
        value, low, high = quantity.value, quantity.low, quantity.high
        if low is None or high is None:
            return np.full(self.count, value)
        deviations = self.normals(name) / _NORMAL
        if low > 0:
            arms = np.where(deviations > 0, np.log(high / value), np.log(value / low))
            return value * np.exp(deviations * arms)
        return value + deviations * np.where(deviations > 0, high - value, value - low)

    def draw_mean(self, name: str, mean: Interval) -> Array:
        """A mean with its interval as draws whose mean it is exactly: what was measured stays what it was.

        Normal on each side likewise, on a scale that knows no end, as differences may be negative.
        """
        if mean.low is None or mean.high is None:
            return np.full(self.count, mean.value)
        deviations = self.normals(name) / _NORMAL
        drawn = deviations * np.where(deviations > 0, mean.high - mean.value, mean.value - mean.low)
        centred: Array = drawn + (mean.value - drawn.mean())
        return centred


def intervals(drawn: Array, repetitions: int = 1) -> tuple[Interval, ...]:
    """Of each row of ``[number, draws]``: the mean, and the ends between which 95 % of the draws lie.

    The ends always hold the mean, though that of a few far draws may lie beyond them.
    """
    outside = int(OUTSIDE * drawn.shape[1])
    ordered = np.sort(drawn, axis=1)
    means, lows, highs = drawn.mean(axis=1), ordered[:, outside], ordered[:, -1 - outside]
    return tuple(
        Interval(value=mean, low=min(low, mean), high=max(high, mean), repetitions=repetitions)
        for mean, low, high in zip(means.tolist(), lows.tolist(), highs.tolist(), strict=True)
    )
