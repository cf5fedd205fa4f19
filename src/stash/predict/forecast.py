"""A forecast: stalls as draws of seconds, each with what it was made of, and the breakdown they add up to.

It ends in the same ``Breakdown`` as a profile, so whatever shows or judges one shows and judges the other. Stalls add
up draw by draw: so do their means, and the step's interval is that of the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stash.analysis.breakdown import (
    Breakdown,
    Communication,
    Missing,
    Paper,
    Rates,
    SampleCounts,
    Stability,
    Stall,
    Waits,
)
from stash.analysis.bubble import Seen
from stash.core.errors import StashError
from stash.core.intervals import Interval
from stash.core.ladder import BUBBLE, STALLS, rung_adding
from stash.core.records.base import Record
from stash.predict.cluster import Target
from stash.predict.draws import Array, Origin, Used, intervals, least_certain


@dataclass(frozen=True, eq=False)
class PredictedStall:
    """One stall as draws of seconds per step, ``[draws]``, and what they were made of."""

    name: str
    seconds: Array
    origin: Origin
    facts: tuple[Used, ...] = ()
    beyond: tuple[str, ...] = ()
    """Where the model left the range in which it was calibrated: one sentence each."""
    spread_known: bool = True
    """Whether the draws hold all there is to be uncertain about; if not, the ends are unknown."""


@dataclass(frozen=True, eq=False)
class PredictedStalls:
    """The stalls that were predicted, and those that do not exist or that cannot be predicted."""

    parts: tuple[PredictedStall, ...]
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, eq=False)
class StallDraws:
    """One changed job: its stalls as draws, stalls that it cannot have or that are unknown, samples of a step."""

    target: Target
    parts: tuple[PredictedStall, ...]
    missing: tuple[Missing, ...]
    samples: float | None

    @cached_property
    def step(self) -> Array:
        """Seconds of a step, ``[draws]``; a lower bound while a part of it is missing that is possible."""
        total: Array = np.sum([part.seconds for part in self.parts], axis=0)
        return total

    @property
    def unknown(self) -> tuple[Missing, ...]:
        """Stalls that the target can have and that cannot be predicted; those that another one contains are not."""
        return find_unknown(self.missing)


def find_unknown(missing: Sequence[Missing]) -> tuple[Missing, ...]:
    return tuple(each for each in missing if each.possible and each.contained_in is None)


# The breakdown they add up to


class Grounds(Record):
    """What one stall of a forecast rests on."""

    stall: str
    origin: Origin
    facts: tuple[Used, ...] = ()
    beyond: tuple[str, ...] = ()


class Forecast(Record):
    """What a step would be on ``target``; make it with ``forecast``.

    A stall that cannot be predicted is in ``breakdown.skipped`` with its reason. If one of those is possible on the
    target, the breakdown's step lacks it: then ``step`` is ``None``, and ``breakdown.step`` a lower bound only.
    """

    target: Target
    breakdown: Breakdown
    grounds: tuple[Grounds, ...]
    """One for each stall, in the same order."""
    draws: int
    seed: int

    @property
    def unknown(self) -> tuple[Missing, ...]:
        """Stalls that the target can have and that cannot be predicted; those that another one contains are not."""
        return find_unknown(self.breakdown.skipped)

    @property
    def step(self) -> Interval | None:
        """Seconds per step; ``None`` while a part of it is unknown."""
        return None if self.unknown else self.breakdown.step

    @property
    def extrapolations(self) -> tuple[str, ...]:
        """Every sentence about extrapolation, once."""
        return tuple(dict.fromkeys(sentence for part in self.grounds for sentence in part.beyond))

    @property
    def origin(self) -> Origin:
        """Of the whole: the least certain of its parts'."""
        return least_certain(part.origin for part in self.grounds)


def forecast(
    target: Target,
    parts: Sequence[PredictedStall],
    unknown: Sequence[Missing] = (),
    samples: float | None = None,
    source: str = "the forecast",
    repetitions: int = 1,
    seed: int = 0,
) -> Forecast:
    """The forecast of these parts, one for each stall, in any order; ``compute`` has to be among them.

    ``unknown`` are the stalls that the target cannot have or that are unknown, ``samples`` those of a step of
    the whole job, and ``repetitions`` the rounds of the profile behind it. Raises StashError for a stall twice.
    """
    ordered = sorted(parts, key=lambda part: STALLS.index(part.name))
    names = tuple(part.name for part in ordered)
    if names[:1] != STALLS[:1] or len(set(names)) < len(names):
        raise StashError(
            f"{source} has no breakdown: its stalls are {', '.join(names) or 'none'}; please report it"
        )
    drawn = np.array([part.seconds for part in ordered])
    grounds = tuple(
        Grounds(stall=part.name, origin=part.origin, facts=part.facts, beyond=part.beyond)
        for part in ordered
    )
    warnings = tuple(dict.fromkeys(sentence for part in grounds for sentence in part.beyond))
    known = [part.spread_known for part in ordered]
    ends = intervals(np.vstack([drawn, drawn.sum(axis=0)]), repetitions)
    *times, step = (
        each if spread else Interval(value=each.value, repetitions=each.repetitions)
        for each, spread in zip(ends, [*known, all(known)], strict=True)
    )
    stalls = tuple(
        Stall(name=part.name, time=time, share=time.value / step.value)
        for part, time in zip(ordered, times, strict=True)
    )
    breakdown = _make_breakdown(source, target, step, stalls, tuple(unknown), samples, warnings)
    return Forecast(
        target=target, breakdown=breakdown, grounds=grounds, draws=drawn.shape[1], seed=seed
    )


def _make_breakdown(
    source: str,
    target: Target,
    step: Interval,
    stalls: tuple[Stall, ...],
    unknown: tuple[Missing, ...],
    samples: float | None,
    warnings: tuple[str, ...],
) -> Breakdown:
    names = tuple(stall.name for stall in stalls)
    # The rungs that would have measured these stalls: compute is the whole time of the lowest.
    rungs = (
        "resident" if "transfer" in names else "solo",
        *(rung_adding(name).name for name in names[1:] if name != BUBBLE),
    )
    counts = None
    if samples is not None:
        alone = samples / target.ranks
        counts = SampleCounts(per_rung=dict.fromkeys(rungs, samples), least=alone, most=alone)
    return Breakdown(
        source=source,
        step_seconds=sum(stall.seconds for stall in stalls),
        step=step,
        samples=counts,
        waits=Waits(),
        rounds=0,
        world_size=target.ranks,
        nodes=target.nodes,
        rungs=rungs,
        stalls=stalls,
        skipped=unknown,
        paper=Paper(),
        stability=Stability(ok=not warnings, warnings=warnings),
        rates=Rates(),
        communication=Communication(),
        # which no rung would have measured
        seen=Seen(stalls=(BUBBLE,), waits=()) if BUBBLE in names else None,
    )
