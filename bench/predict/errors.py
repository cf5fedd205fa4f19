"""Predicted against measured: a case, what its errors add up to, and the tables that say so. Knows no source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

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

    @property
    def value(self) -> float:
        return float(np.mean(self.predicted))

    @property
    def error(self) -> float:
        """Signed, as a fraction of what was measured."""
        return self.value / self.measured - 1

    @property
    def covered(self) -> bool:
        (found,) = intervals(self.predicted[None, :])
        return found.low is not None and found.high is not None and found.low <= self.measured <= found.high


@dataclass(frozen=True)
class Errors:
    """Of several predictions, as fractions of what was measured."""

    cases: int
    median: float
    ninetieth: float
    """Percentile."""
    bias: float
    """Mean of the signed errors."""

    @property
    def words(self) -> str:
        return f"{self.median:.1%} / {self.ninetieth:.1%}"


def errors(signed: Iterable[float]) -> Errors:
    """What signed errors add up to; one at least."""
    found = np.array(list(signed))
    sizes = np.abs(found)
    return Errors(len(found), float(np.median(sizes)), float(np.percentile(sizes, 90)), float(found.mean()))


def coverage(predictions: Sequence[Prediction]) -> float:
    """Fraction of predictions whose 95 % interval holds what was measured."""
    return float(np.mean([each.covered for each in predictions]))


def by_source(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """In the order in which sources first appear."""
    found: dict[str, list[Prediction]] = {}
    for each in predictions:
        found.setdefault(each.source, []).append(each)
    return found


def summary(predictions: Sequence[Prediction]) -> list[str]:
    """A table in Markdown: a line a source, median and 90th percentile of errors, beside every baseline's."""
    baselines = list(dict.fromkeys(name for each in predictions for name in each.baselines))
    head = ["source", "cases", "Stash: median / 90th", "bias", "in the interval", *(f"{name}" for name in baselines)]
    lines = [_row(head), _row(["---"] * len(head))]
    for source, own in by_source(predictions).items():
        found = errors(each.error for each in own)
        others = [_baseline(own, name) for name in baselines]
        cells = [source, str(found.cases), found.words, f"{found.bias:+.1%}", f"{coverage(own):.0%}", *others]
        lines.append(_row(cells))
    return lines


def worst(predictions: Sequence[Prediction], count: int = 5) -> list[str]:
    """The predictions that are farthest off, a line each."""
    ordered = sorted(predictions, key=lambda each: -abs(each.error))[:count]
    lines = [_row(["case", "measured", "predicted", "error", "in its interval"]), _row(["---"] * 5)]
    for each in ordered:
        cells = [f"{each.source}: {each.name}", f"{each.measured:.4g}", f"{each.value:.4g}", f"{each.error:+.1%}"]
        lines.append(_row([*cells, "yes" if each.covered else "no"]))
    return lines


def _baseline(own: Sequence[Prediction], name: str) -> str:
    known = [each.baselines[name] / each.measured - 1 for each in own if name in each.baselines]
    return errors(known).words if known else "–"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
