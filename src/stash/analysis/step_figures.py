"""The figures that all texts about a step share: one rounding for one number, in the table and in every sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stash.analysis.breakdown import SlowRank, Stall
from stash.core.formatting import plus_minus
from stash.core.units import SECONDS, Scale, format_seconds, round_to_sum, scale_for

_STEP_DIGITS = 4
"""Of a step's time, which all its stalls share; one more than elsewhere, since they are parts of it."""


@dataclass(frozen=True)
class StepFigures:
    """The stalls of one step, rounded together; make it with ``make_figures``."""

    stalls: Mapping[str, Stall]
    scale: Scale
    times: Mapping[str, float]
    """In ``scale.unit``, adding up to the rounded step."""
    shares: Mapping[str, float]
    """In percent, adding up to 100.0."""
    step_seconds: float

    @property
    def step(self) -> str:
        """``"227.6 ms"``"""
        return self.scale.text(self.step_seconds)

    def time(self, *names: str) -> str:
        """``"42.3 ms"``: the rounded times of the named stalls, added up; those not measured add nothing."""
        return f"{self._number(*names)} {self.scale.unit}"

    def spread(self, name: str) -> str:
        """``"± 7.7"``, in the step's unit."""
        return plus_minus(self.stalls[name].time, self.scale)

    def quantity(self, name: str) -> str:
        """``"42.3 ± 7.7 ms"``; without an interval ``"42.3 ms"``."""
        if self.stalls[name].low is None:
            return self.time(name)
        return f"{self._number(name)} {self.spread(name)} {self.scale.unit}"

    def share(self, name: str) -> str:
        """``"18.6%"`` of the step."""
        return f"{self.shares[name]:.1f}%"

    def part(self, seconds: float, of: str = "") -> str:
        """A part of a step in three digits: ``"31.7 ms (14%)"``, or with ``of=" a step"`` ``"31.7 ms a step (14%)"``.

        One that is a stall's whole time is written as the stall is.
        """
        same = next(
            (name for name, stall in self.stalls.items() if math.isclose(stall.seconds, seconds)),
            None,
        )
        if same is not None:
            return f"{self.time(same)}{of} ({self.share(same)})"
        return f"{format_seconds(seconds)}{of} ({seconds / self.step_seconds:.0%})"

    def _number(self, *names: str) -> str:
        return f"{sum(self.times.get(name, 0.0) for name in names):,.{self.scale.decimals}f}"


def make_figures(stalls: Sequence[Stall]) -> StepFigures:
    """The figures of a step made of ``stalls``: one rounding for one number, in the table and in every sentence."""
    step = sum(stall.seconds for stall in stalls)
    scale = scale_for(step, SECONDS, _STEP_DIGITS)
    names = [stall.name for stall in stalls]
    times = round_to_sum([stall.seconds / scale.size for stall in stalls], scale.decimals)
    shares = round_to_sum([stall.share * 100 for stall in stalls], 1)
    return StepFigures(
        stalls={stall.name: stall for stall in stalls},
        scale=scale,
        times=dict(zip(names, times, strict=True)),
        shares=dict(zip(names, shares, strict=True)),
        step_seconds=step,
    )


def slower_text(slow: SlowRank) -> str:
    """How much slower a slow rank is: ``"30.0 ms slower than the others (150 ms against 120 ms)"``."""
    against = f"{format_seconds(slow.seconds)} against {format_seconds(slow.others_seconds)}"
    return (
        f"{format_seconds(slow.seconds - slow.others_seconds)} slower than the others ({against})"
    )
