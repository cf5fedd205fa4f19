"""What a plan's fleet came to on spot machines as they were watched: per policy, and one run as each of them did it.

Seconds, US dollars; ``None`` means "not known". How it is reckoned is ``derive/spot/holding/simulating.py``.
"""

from __future__ import annotations

from typing import Literal

from stash.base.records.base import Count, Number, PlainName, Record, Sentence
from stash.base.spot.risk import CheckpointInterval, TrainingMode
from stash.base.stats.intervals import Interval


class PolicyOutcome(Record):
    """What one policy came to, over all runs."""

    name: PlainName
    text: Sentence
    dollars: Interval | None
    """Mean; ``None`` if no run could be done."""
    on_demand_hours: Interval | None
    """Of the gang."""
    late: float
    """Share of runs."""
    runs: Count
    late_interval: Interval | None = None
    """The same share; its ends are unknown where the traces hold less than two runs beside each other."""
    revocations: Number | None = None
    """Mean of a run, of the whole gang; ``None`` for who knew them beforehand."""


class HeldSpan(Record):
    """A stretch of one run in which a policy held the same machines."""

    begin: Number
    end: Number
    """Seconds since the run began."""
    held: Literal["spot", "on-demand"]


class PolicyCourse(Record):
    """One run under one policy."""

    name: PlainName
    spans: tuple[HeldSpan, ...]
    revoked: tuple[Number, ...]
    """Seconds since the run began."""
    done: tuple[tuple[Number, Number], ...]
    """Second and share of the work that was done by then, revocations taken off."""
    dollars: Number
    late: bool


class SpotSimulation(Record):
    """The answer to one ``stash spot simulate``."""

    workers: dict[PlainName, int]
    obtainable: float
    """Share of ticks in which all of them could be had."""
    runs: Count
    seed: Count
    policies: tuple[PolicyOutcome, ...]
    advice: Sentence
    mode: TrainingMode = "asynchronous"
    checkpoint: CheckpointInterval | None = None
    """Of a synchronous job."""
    independent: Number | None = None
    """Runs that the traces hold beside each other; ``None`` in older files."""
    deadline_seconds: Number | None = None
    courses: tuple[PolicyCourse, ...] = ()
    """One run as every policy did it: one with as many revocations as most have."""
    there: tuple[tuple[Number, Number], ...] = ()
    """When all machines could be had in that run: begin, end."""
    notes: tuple[Sentence, ...] = ()
