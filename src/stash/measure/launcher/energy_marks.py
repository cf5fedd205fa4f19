"""What the blocks of a rung drew: energy counters read as each phase begins, subtracted block by block. Pure.

The launcher reads them as soon as it hears of a phase, up to a tenth of a second late at both ends: what of its
neighbours falls into a block falls out of it at the other end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stash.core.records.circumstances import EnergyPart, EnergyUse
from stash.measure.host.energy import EnergyCount, subtract_energy

_LEAST_SECONDS = 0.3
"""Of a block: of shorter ones too much is their neighbours'."""
_DIGITS = 6


@dataclass(frozen=True)
class EnergyMark:
    """The counters as a phase began."""

    rung: str
    """Whose block it is; another phase's name counts for none."""
    seconds: float
    counts: Mapping[EnergyPart, EnergyCount]


def sum_energy(
    marks: Sequence[EnergyMark],
    rung: str,
    parts: Sequence[EnergyPart],
    dollars_per_kwh: float | None = None,
) -> EnergyUse | None:
    """What blocks of ``rung`` drew, of these parts of the machine; ``None`` without a mark."""
    if not marks:
        return None
    spans = [
        (after.seconds - before.seconds, _subtract_marks(after, before))
        for before, after in pairwise(marks)
        if before.rung == rung and after.seconds - before.seconds >= _LEAST_SECONDS
    ]
    known = [part for part in parts if any(part in joules for _, joules in spans)]
    whole = [(seconds, joules) for seconds, joules in spans if known and joules.keys() >= {*known}]
    last, found = marks[-1].counts, known if whole else []
    short = f"no block of the rung {rung} had the counters at both of its ends"
    return EnergyUse(
        rung=rung,
        seconds=tuple(_round(seconds) for seconds, _ in whole),
        joules={part: tuple(_round(joules[part]) for _, joules in whole) for part in found},
        counts={part: len(last[part].joules) for part in found},
        unknown={part: last[part].unknown or short for part in parts if part not in found},
        dollars_per_kwh=dollars_per_kwh,
    )


def _subtract_marks(after: EnergyMark, before: EnergyMark) -> dict[EnergyPart, float]:
    """Joules between both, of the parts that were counted."""
    joules = {
        part: subtract_energy(count, before.counts[part]) for part, count in after.counts.items()
    }
    return {part: value for part, value in joules.items() if value is not None}


def _round(value: float) -> float:
    """With as many digits as mean something."""
    return float(f"{value:.{_DIGITS}g}")
