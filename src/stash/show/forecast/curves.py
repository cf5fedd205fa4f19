"""A sweep made ready to be drawn: its points as numbers and texts, and how they lie on an axis.

One quantity is drawn: samples per second, or the step where samples are unknown. Knows nothing of terminals or files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stash.base.stats.intervals import Interval
from stash.base.words.quantities import listed, plus_minus
from stash.base.words.rounding import Scale, scale_for
from stash.base.words.units import SECONDS
from stash.derive.predict.answers.limits import next_bottleneck
from stash.derive.predict.answers.sweep import Point, SweptOption

_RATE = ((1.0, "samples/s"),)


@dataclass(frozen=True)
class CurvePoint:
    """One forecast: where on the axes, and its value and band in ``SweepView.unit``; ``None`` where there is none."""

    at: tuple[str, ...]
    text: str
    step: str
    value: float | None
    low: float | None
    high: float | None
    largest: str = ""
    """What limits the step there."""
    beyond: bool = False
    """It reaches beyond what was calibrated."""


@dataclass(frozen=True)
class SweepView:
    """Everything that is said of a sweep."""

    title: str
    question: str
    options: tuple[str, ...]
    unit: str
    step_unit: str
    points: tuple[CurvePoint, ...]
    measured: float | None
    """The profile's own, in ``unit``."""
    notes: tuple[str, ...]

    @property
    def most(self) -> float:
        """The end of the axis of values."""
        ends = [end for point in self.points for end in (point.value, point.high) if end is not None]
        return max(ends, default=0.0)


def sweep_view(
    workload: str,
    typed: dict[str, str],
    over: Sequence[SweptOption],
    points: Sequence[Point],
    measured_rate: float | None,
    measured_step: float,
) -> SweepView:
    """The view of a sweep; rates if every point has one, else steps."""
    told = [point.told for point in points if point.told is not None]
    rated = bool(told) and measured_rate is not None and all(each.breakdown.samples_per_second for each in told)
    steps = scale_for(max((each.breakdown.step_seconds for each in told), default=1.0), SECONDS, 4)
    rates = scale_for(max((each.breakdown.samples_per_second or 0.0 for each in told), default=1.0), _RATE, 3)
    scale = rates if rated else steps
    names = tuple(axis.option for axis in over)
    fixed = listed([f"{name} {text}" for name, text in typed.items()], most=20)
    return SweepView(
        title=workload,
        question=f"over {' and '.join(names)}" + (f", with {fixed}" if fixed else ""),
        options=names,
        unit=scale.unit,
        step_unit=steps.unit,
        points=tuple(_point(point, scale, steps, rated) for point in points),
        measured=(measured_rate if rated and measured_rate else measured_step) / scale.size,
        notes=tuple(dict.fromkeys([*_beyond(points), *_unknown(points)])),
    )


def _point(point: Point, scale: Scale, steps: Scale, rated: bool) -> CurvePoint:
    if point.told is None:
        return CurvePoint(point.texts, "unknown", "", None, None, None)
    breakdown = point.told.breakdown
    drawn = _rate(breakdown.step, breakdown.samples_per_step or 1.0) if rated else breakdown.step
    largest = next_bottleneck(point.told)
    low, high = (None if end is None else end / scale.size for end in (drawn.low, drawn.high))
    return CurvePoint(
        at=point.texts,
        text=f"{scale.number(drawn.value)} {plus_minus(drawn, scale)}",
        step=steps.number(breakdown.step_seconds),
        value=drawn.value / scale.size,
        low=low,
        high=high,
        largest=f"{largest.name} {largest.share:.0%}",
        beyond=bool(point.told.beyond),
    )


def _rate(step: Interval, samples: float) -> Interval:
    low, high = (None if not end or end <= 0 else samples / end for end in (step.high, step.low))
    known = low is not None and high is not None
    return Interval(value=samples / step.value, low=low if known else None, high=high if known else None)


def _beyond(points: Sequence[Point]) -> list[str]:
    """Each sentence once, with the first point that needs it."""
    found: dict[str, str] = {}
    for point in points:
        for sentence in point.told.beyond if point.told is not None else ():
            kind = "".join(letter for letter in sentence if not letter.isdigit())
            found.setdefault(kind, f"from {' and '.join(point.texts)} on: {sentence}")
    return list(found.values())


def _unknown(points: Sequence[Point]) -> list[str]:
    found: dict[str, list[str]] = {}
    for point in points:
        if point.told is None and point.why is not None:
            found.setdefault(point.why, []).append(" and ".join(point.texts))
    return [f"unknown at {listed(texts)}: {why}" for why, texts in found.items()]
