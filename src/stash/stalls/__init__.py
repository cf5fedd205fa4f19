"""Where a step's time goes: profile in, breakdown and advice out, both pure.

``attribute`` turns the blocks of a profile into stalls that sum exactly to the step, ``verdict`` turns those
into a sentence and next steps. Nothing here measures, prints or stores.
"""

from stash.stalls.advice import verdict
from stash.stalls.attribution import attribute, stalls_of
from stash.stalls.breakdown import (
    Advice,
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
from stash.stalls.matrix import Ladder, step_matrix

__all__ = [
    "Advice",
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
    "verdict",
]
