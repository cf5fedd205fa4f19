"""Where a step's time goes: profile in, breakdown out, pure.

``attribute`` turns the blocks of a profile into stalls that sum exactly to the step. Nothing here measures, prints
or stores.
"""

from stash.derive.stalls.attribution import attribute, stalls_of
from stash.derive.stalls.breakdown import (
    Breakdown,
    Communication,
    Missing,
    Paper,
    Rates,
    SlowRank,
    Stability,
    Stall,
    Surfacing,
)
from stash.derive.stalls.matrix import Ladder, step_matrix

__all__ = [
    "Breakdown",
    "Communication",
    "Ladder",
    "Missing",
    "Paper",
    "Rates",
    "SlowRank",
    "Stability",
    "Stall",
    "Surfacing",
    "attribute",
    "stalls_of",
    "step_matrix",
]
