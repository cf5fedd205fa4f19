"""What a tool answered, and whether it was right: the records and the judge shared by all tools.

A tool is judged twice: by what it *says* (its own verdict, or its top entry) and by what its *numbers allow* a
competent reader to conclude, by one rule that is the same for every tool. Knows no tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BROADER = {
    "prep": "input",
    "fetch": "input",
    "interconnect": "communication",
    "network": "communication",
}
"""Causes and the broader word that a tool may use which cannot tell them apart."""
NOTICEABLE = 0.1
"""A part of the step smaller than this is no reader's bottleneck."""


@dataclass(frozen=True)
class Reading:
    """A conclusion: *compute*, *slow rank*, a word of ``BROADER`` or its broader one; the rank at fault, the seconds
    it costs a step; None is not stated."""

    cause: str | None = None
    rank: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Answer:
    """All that is kept of one tool on one job."""

    quote: str
    """The tool's own words, or the exact line with which it failed."""
    says: Reading
    allows: Reading
    wall_seconds: float
    """All of its launches and its analysis."""


def conclude(step: float, parts: Mapping[str, float], rank: int | None = None) -> Reading:
    """The reader's rule: the largest part that is not compute, if it is a tenth of the step; else compute.

    ``parts`` are seconds per step by cause, ``rank`` the one at fault if the largest is a slow rank.
    """
    others = {cause: seconds for cause, seconds in parts.items() if cause != "compute"}
    cause = max(others, key=lambda name: others[name], default=None)
    if cause is None or others[cause] < NOTICEABLE * step:
        return Reading("compute", None, parts.get("compute"))
    return Reading(cause, rank if cause == "slow rank" else None, others[cause])


def right_cause(answer: str | None, true: str) -> str:
    """``yes``, ``broadly`` (the broader word only), ``no``, or ``says none``."""
    if answer is None:
        return "says none"
    if answer == true:
        return "yes"
    return "broadly" if answer == BROADER.get(true) else "no"


def right_rank(answer: int | None, true: int | None) -> str:
    """``yes`` or ``no``; a dash where there is no rank to name and none was named."""
    if answer is None and true is None:
        return "–"
    return "yes" if answer == true else f"no ({'none' if answer is None else f'rank {answer}'})"


def error(answer: float | None, true: float) -> str:
    """Signed error in milliseconds; a dash where nothing was stated."""
    return "–" if answer is None else f"{(answer - true) * 1e3:+.1f}"
