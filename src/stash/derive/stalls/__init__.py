"""Where a step's time goes: profile in, breakdown out, pure.

``attribute`` turns the blocks of a profile into stalls that sum exactly to the step. Nothing here measures, prints
or stores.
"""

from stash.derive.stalls.attribution import attribute
from stash.derive.stalls.breakdown import (
    Breakdown,
    Communication,
    Missing,
    Paper,
    Rates,
    SampleCounts,
    SlowRank,
    Stability,
    Stall,
    Surfacing,
    Waits,
)
from stash.derive.stalls.standing import Standing, standing
from stash.derive.stalls.step_times import StepTimes, step_matrix

__all__ = [
    "Breakdown",
    "Communication",
    "Missing",
    "Paper",
    "Rates",
    "SampleCounts",
    "SlowRank",
    "Stability",
    "Stall",
    "Standing",
    "StepTimes",
    "Surfacing",
    "Waits",
    "attribute",
    "standing",
    "step_matrix",
]
