"""The method's own error, from the truth suite: ``python -m bench.truth.method_error RUN [LATER]``.

Intervals over rounds tell how far steps repeat themselves, not how far the method is from the truth: the
interpreter's work between layers, copies into buckets, bookkeeping of files. What is left of the suite's errors
beyond the noise gives a half-width per stall, in seconds and as a share of the stall; it is then checked on cases
that were left out, and on a later run if there is one. RUN and LATER are files with the table that ``make truth``
prints; the one fitted to is ``bench/truth/data/2026-11-22.md``, a later one lies beside it. The result is copied,
with its date, to ``stash.analysis.uncertainty``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.table import table

CONFIDENCE = 0.95
SHARE = 0.01
"""Of a stall, besides its seconds: the exchange over real links is off by 1 % of itself and more."""


class Residual(NamedTuple):
    """What a profile of a case found of a stall, in seconds."""

    case: str
    stall: str
    truth: float
    estimate: float
    low: float
    high: float

    @property
    def error(self) -> float:
        return self.estimate - self.truth

    @property
    def noise(self) -> float:
        """The arm of the interval on the side of the truth."""
        return self.estimate - self.low if self.error > 0 else self.high - self.estimate


def residuals(path: Path) -> list[Residual]:
    """Those of the table that ``make truth`` prints, in milliseconds there."""
    found = []
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) not in (13, 14) or " to " not in cells[5]:
            continue
        truth, estimate = float(cells[2]) / 1e3, float(cells[4]) / 1e3
        low, high = (float(end) / 1e3 for end in cells[5].split(" to "))  # until 2026-11-24 of the noise alone
        if len(cells) == 14:
            low, high = (estimate + sign * float(cells[13] or "nan") / 1e3 for sign in (-1, 1))
        found.append(Residual(cells[0], cells[1], truth, estimate, low, high))
    return found


def fitted(found: Sequence[Residual]) -> dict[str, float]:
    """Seconds per stall that, in quadrature with noise and share, explain 95 % of its errors."""
    beyond: dict[str, list[float]] = {}
    for one in found:
        squared = one.error**2 - one.noise**2 - (SHARE * one.estimate) ** 2
        beyond.setdefault(one.stall, []).append(math.sqrt(max(0.0, squared)))
    return {stall: float(np.quantile(errors, CONFIDENCE)) for stall, errors in beyond.items()}


def holds(one: Residual, seconds: float) -> bool:
    """Whether noise and method together explain the error."""
    return abs(one.error) <= math.sqrt(one.noise**2 + seconds**2 + (SHARE * one.estimate) ** 2)


def left_out(found: Sequence[Residual]) -> dict[str, list[bool]]:
    """Per stall, whether each error is explained by what was fitted without its case."""
    held: dict[str, list[bool]] = {}
    for case in dict.fromkeys(one.case for one in found):
        others = fitted([one for one in found if one.case != case])
        for one in found:
            if one.case == case:
                held.setdefault(one.stall, []).append(holds(one, others.get(one.stall, 0.0)))
    return held


def explained(found: Sequence[Residual], seconds: dict[str, float]) -> None:
    """Print how much of another run is."""
    rows = []
    for stall, own in by_stall(found).items():
        median = f"{np.median([one.error for one in own]) * 1e3:+.2f}"
        rows.append([stall, str(len(own)), median, by_noise(own), share(holds(one, seconds[stall]) for one in own)])
    print(table(("stall", "errors", "median (ms)", "noise alone", "both"), rows))
    everything = [holds(one, seconds[one.stall]) for one in found]
    print(f"\nOf the later run, {np.mean(everything):.1%} of {len(everything)} errors are explained.")


def by_stall(found: Sequence[Residual]) -> dict[str, list[Residual]]:
    return {
        stall: [one for one in found if one.stall == stall] for stall in dict.fromkeys(one.stall for one in found)
    }


def by_noise(own: Sequence[Residual]) -> str:
    return share(abs(one.error) <= one.noise for one in own)


def share(held: Iterable[bool]) -> str:
    return f"{np.mean(list(held)):.0%}"


def main() -> None:
    """Fit, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, metavar="RUN")
    parser.add_argument("later", type=Path, nargs="?", metavar="LATER")
    given = parser.parse_args()
    found = residuals(given.results)
    seconds, held = fitted(found), left_out(found)
    rows = []
    for stall, own in by_stall(found).items():
        rows.append([
            stall, str(len(own)),
            f"{np.median([one.error for one in own]) * 1e3:+.2f}", f"{seconds[stall] * 1e3:.2f}", by_noise(own),
            share(holds(one, seconds[stall]) for one in own), share(held[stall]),
        ])  # fmt: skip
    print(table(("stall", "errors", "median (ms)", "method (ms)", "noise alone", "both", "left out"), rows))
    everything = [one for checked in held.values() for one in checked]
    print(f"\nOf cases left out, {np.mean(everything):.1%} of {len(everything)} errors are explained.")
    if given.later is not None:
        print()
        explained(residuals(given.later), seconds)


if __name__ == "__main__":
    main()
