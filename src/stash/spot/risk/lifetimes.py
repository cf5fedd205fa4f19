"""How often a spot machine is revoked, as it is stated: at one rate at any age, a band at its upper end.

What was watched is replayed instead (``replacing``). Times are in seconds. Knows no jobs and no prices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stash.core.units import MONTH_HOURS
from stash.spot.records.risks import InterruptionBand

HOUR = 3600.0


@dataclass(frozen=True)
class RevocationRate:
    """How often machines of a type go, and how that is known."""

    per_second: float
    why: str


def rate_of_band(band: InterruptionBand) -> RevocationRate:
    """The upper end of a band."""
    if band.low == band.high:
        return RevocationRate(band.high / HOUR, f"stated: {_share(band.high)}; taken as memoryless")
    ends = f"{_share(band.low)} to {_share(band.high)}"
    return RevocationRate(band.high / HOUR, f"stated: {ends}; taken as memoryless at the upper end")


def _share(rate: float) -> str:
    """A rate per hour, as the share of machines that go in a month where it is low, as clouds state it."""
    monthly = -math.expm1(-rate * MONTH_HOURS)
    return f"{100 * monthly:.2g}% a month" if monthly < 0.5 else f"{rate:.2g} an hour"
