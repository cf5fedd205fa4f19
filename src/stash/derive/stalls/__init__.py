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
from stash.derive.stalls.course import Course, RoundTime, course
from stash.derive.stalls.readiness import Readiness, readiness
from stash.derive.stalls.side_by_side import RankTime, ranks_side_by_side
from stash.derive.stalls.standing import Standing, standing
from stash.derive.stalls.step_times import StepTimes, step_matrix
from stash.derive.stalls.storage import DataBlock, data_blocks
from stash.derive.stalls.usage import Use, usage

__all__ = [
    "Breakdown",
    "Communication",
    "Course",
    "DataBlock",
    "Missing",
    "Paper",
    "RankTime",
    "Rates",
    "Readiness",
    "RoundTime",
    "SampleCounts",
    "SlowRank",
    "Stability",
    "Stall",
    "Standing",
    "StepTimes",
    "Surfacing",
    "Use",
    "Waits",
    "attribute",
    "course",
    "data_blocks",
    "ranks_side_by_side",
    "readiness",
    "standing",
    "step_matrix",
    "usage",
]
