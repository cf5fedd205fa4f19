"""Predicted against measured: a case, what its errors add up to, and the tables that show it. Knows no source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

from bench.table import median_90, table
from stash.predict.draws import Array, intervals


@dataclass(frozen=True, eq=False)
class Prediction:
    """One number that somebody measured, and what was predicted of it without knowing it."""

    source: str
    name: str
    measured: float
    """Samples per second, or seconds of a step: whatever it is, more than 0."""
    predicted: Array
    """The same as draws, ``[draws]``."""
    baselines: Mapping[str, float] = field(default_factory=dict)
    """The same number by simpler means."""
    middle: float | None = None
    """What is printed of it; ``None``: the mean of the draws."""

    @classmethod
    def throughput(
        cls,
        source: str,
        name: str,
        measured: float,
        samples: float,
        step: Array,
        baselines: Mapping[str, float],
    ) -> Prediction:
        """Of steps as draws of seconds, ``[draws]``: as forecasts print it, that of the mean step."""
        return cls(source, name, measured, samples / step, baselines, samples / float(step.mean()))

    @property
    def value(self) -> float:
        return float(np.mean(self.predicted)) if self.middle is None else self.middle

    @property
    def error(self) -> float:
        """Signed, as a fraction of what was measured."""
        return self.value / self.measured - 1

    @property
    def is_covered(self) -> bool:
        (found,) = intervals(self.predicted[None, :])
        return (
            found.low is not None
            and found.high is not None
            and found.low <= self.measured <= found.high
        )


def coverage(predictions: Sequence[Prediction]) -> float:
    """Fraction of predictions whose 95 % interval holds what was measured."""
    return float(np.mean([each.is_covered for each in predictions]))


def widen_spread(spread: float, witnesses: int) -> float:
    """A standard deviation seen in so few sources, or models, such that ±1.96 of it hold 95 % of new ones."""
    return spread * float(stdtrit(witnesses, 0.975)) / 1.96


def summary(predictions: Sequence[Prediction]) -> str:
    """A line a source, in the order in which they appear: errors, median and 90th percentile, beside baselines'."""
    names = list(dict.fromkeys(name for each in predictions for name in each.baselines))
    rows = []
    for source in dict.fromkeys(each.source for each in predictions):
        own = [each for each in predictions if each.source == source]
        bias = np.mean([each.error for each in own])
        others = [
            median_90(
                (
                    each.baselines[name] / each.measured - 1
                    for each in own
                    if name in each.baselines
                ),
                " / ",
            )
            for name in names
        ]
        errors = median_90((each.error for each in own), " / ")
        rows.append([source, len(own), errors, f"{bias:+.1%}", f"{coverage(own):.0%}", *others])
    return table(
        ["source", "cases", "Stash: median / 90th", "bias", "in the interval", *names], rows
    )


_ENOUGH = 20
"""Cases of a set whose coverage is judged."""
_SURPRISING = 59
"""Cases of which all being held is no luck: with right intervals that happens to fewer than 5 % of such sets."""
_LEVEL = 0.001
"""Medians that differ by less are not told apart."""
HELD = (0.88, 0.99)
"""What a set's 95 % intervals should hold."""


def verdicts(predictions: Sequence[Prediction]) -> str:
    """A line a source: the one-line rule of the least median error beside Stash, and whose is smaller."""
    rows = []
    for source in dict.fromkeys(each.source for each in predictions):
        own = [each for each in predictions if each.source == source]
        rules = {
            name: [
                each.baselines[name] / each.measured - 1 for each in own if name in each.baselines
            ]
            for name in dict.fromkeys(name for each in own for name in each.baselines)
        }
        best = min(rules, key=lambda name: float(np.median(np.abs(rules[name]))))
        errors = [each.error for each in own]
        held = coverage(own)
        missed = (len(own) >= _ENOUGH and held < HELD[0]) or (
            len(own) >= _SURPRISING and held > HELD[1]
        )
        mark = " (aim missed)" if missed else ""
        lead = float(np.median(np.abs(rules[best])) - np.median(np.abs(errors)))
        wins = "level" if abs(lead) < _LEVEL else "Stash" if lead > 0 else "the rule"
        rows.append(
            [
                source,
                len(own),
                best,
                median_90(rules[best], " / "),
                median_90(errors, " / "),
                wins,
                f"{held:.0%}{mark}",
            ]
        )
    return table(
        ["set", "cases", "best rule", "rule", "Stash", "who wins", "in the interval"], rows
    )


def worst(predictions: Sequence[Prediction], count: int = 5) -> str:
    """The predictions that are farthest off, a line each."""
    return table(
        ["case", "measured", "predicted", "error", "in its interval"],
        [
            [
                f"{each.source}: {each.name}",
                f"{each.measured:.4g}",
                f"{each.value:.4g}",
                f"{each.error:+.1%}",
                "yes" if each.is_covered else "no",
            ]
            for each in sorted(predictions, key=lambda each: -abs(each.error))[:count]
        ],
    )


def evidence(
    title: str,
    split: str,
    predictions: Sequence[Prediction],
    farthest: Sequence[Prediction] | None = None,
) -> str:
    """A section: how what is predicted was kept apart, errors by source, and the cases that are farthest off."""
    off = worst(predictions if farthest is None else farthest)
    return f"## {title}\n\n{split}\n\n{summary(predictions)}\n\nThe farthest off:\n\n{off}"
