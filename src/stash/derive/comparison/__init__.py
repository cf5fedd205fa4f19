"""What is said of two or more profiles together: what differs, whether that is shown, what keeps a limit."""

from stash.derive.comparison.differences import (
    FASTER,
    NOT_SHOWN,
    SLOWER,
    UNKNOWN,
    Difference,
    RunComparison,
    compare,
)
from stash.derive.comparison.facts import DifferingFact, changed, incomparable, told
from stash.derive.comparison.limits import (
    CANNOT_TELL,
    FAILS,
    PASSES,
    Decision,
    Limit,
    Tolerance,
    held,
    not_slower,
    overall,
    parse,
    parse_slower,
)
from stash.derive.comparison.requirements import Requirement, parse_requirement, required
from stash.derive.comparison.scaling import network_stall

__all__ = [
    "CANNOT_TELL",
    "FAILS",
    "FASTER",
    "NOT_SHOWN",
    "PASSES",
    "SLOWER",
    "UNKNOWN",
    "Decision",
    "Difference",
    "DifferingFact",
    "Limit",
    "Requirement",
    "RunComparison",
    "Tolerance",
    "changed",
    "compare",
    "held",
    "incomparable",
    "network_stall",
    "not_slower",
    "overall",
    "parse",
    "parse_requirement",
    "parse_slower",
    "required",
    "told",
]
