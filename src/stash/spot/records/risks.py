"""What is known and foreseen of spot machines, as records: markets, revocations, simulated policies.

Holds numbers; how they are found is ``spot/risk``'s and ``spot/policies``' business. Seconds and US dollars; ``None``
means "not known".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stash.core.intervals import Interval
from stash.core.records.base import Count, Number, PlainName, Record, Sentence


class Obtainable(Record):
    """How many machines could be had, tick by tick."""

    gap_seconds: Annotated[Number, Field(ge=1e-3, le=1e9)]
    machines: tuple[Count, ...] = Field(min_length=1)
    start_seconds: Number | None = None
    """When the first tick began, since 1970; ``None`` if unstated."""
    dollars: tuple[Number | None, ...] = ()
    """What one cost an hour in each tick, where that was written down: as many as ``machines``, or none."""

    @model_validator(mode="after")
    def _a_price_a_tick(self) -> Obtainable:
        if self.dollars and len(self.dollars) != len(self.machines):
            raise ValueError(f"prices: there are {len(self.dollars)} for {len(self.machines)} ticks of data")
        return self


class SpotPrices(Record):
    """What one type cost; each price holds until the next one."""

    moments: tuple[Number, ...] = Field(min_length=1)
    """Seconds since 1970, ascending."""
    dollars: tuple[Number, ...]
    """An hour."""

    @model_validator(mode="after")
    def _one_price_a_moment(self) -> SpotPrices:
        if len(self.moments) != len(self.dollars) or list(self.moments) != sorted(set(self.moments)):
            raise ValueError("prices: their moments do not ascend, or some have no price")
        return self


# What revocations do to a plan

LawName = Literal["memoryless", "Weibull", "Kaplan-Meier"]
TrainingMode = Literal["asynchronous", "synchronous"]
"""What a revocation costs: its worker's gradient and the time until another has joined, or all work since the last
checkpoint and the time until the gang is whole again."""


class InterruptionBand(Record):
    """Between how many revocations a machine is, an hour of being there; the ends are equal where it is a rate."""

    low: Annotated[Number, Field(ge=0, le=1e6)]
    high: Annotated[Number, Field(ge=0, le=1e6)]

    @model_validator(mode="after")
    def _ordered(self) -> InterruptionBand:
        if self.high < self.low:
            raise ValueError("interruptions: the band ends before it begins")
        return self


class TypeLife(Record):
    """How long machines of one type live, and how that is known."""

    type: str
    law: LawName
    mean_seconds: Number | None
    """``None``: beyond what can be stated."""
    why: Sentence


class CheckpointInterval(Record):
    """How long to compute between two checkpoints, by several formulas; seconds."""

    write_seconds: Number
    """C."""
    mtbf_seconds: Number
    """Mean time until the first machine of the gang is revoked."""
    young: Number
    daly: Number
    best: Number
    """What to take."""
    how: Sentence
    just_in_time: bool
    """Whether one can be written after the notice, so that nothing is lost with one."""


class FleetRisk(Record):
    """A plan's fleet where machines are revoked."""

    mode: TrainingMode
    how: Literal["closed form", "Monte Carlo", "replay"]
    """The first of older files alone."""
    p_deadline: Interval
    """With what the pool says of its own uncertainty."""
    dollars: Interval
    """Mean; a late run is paid until the deadline."""
    revocations: Number
    """Mean, of all machines."""
    runs: Count
    lives: tuple[TypeLife, ...]
    checkpoint: CheckpointInterval | None = None
    on_demand_dollars: Number | None
    """Of the cheapest fleet on demand that is in time; ``None`` without prices, or if there is none."""
    beyond: tuple[Sentence, ...] = ()
    advice: Sentence
    weighed: Count = 1
    """Fleets whose risk was computed until this one was chosen."""


# What a plan's fleet came to on spot machines as they were watched: per policy, and one run as each of them did it


class PolicyOutcome(Record):
    """What one policy came to, over all runs."""

    name: PlainName
    text: Sentence
    dollars: Interval
    """Mean."""
    on_demand_hours: Interval
    """Of the gang."""
    late: float
    """Share of runs."""
    runs: Count
    late_interval: Interval
    """The same share; its ends are unknown where the traces hold less than two whole runs one after the other."""
    revocations: Number
    """Mean of a run, of the whole gang."""


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
    independent: Number
    """Whole runs that the traces hold one after the other."""
    deadline_seconds: Number
    courses: tuple[PolicyCourse, ...] = ()
    """One run as every policy did it: one with as many revocations as most have."""
    there: tuple[tuple[Number, Number], ...] = ()
    """When all machines could be had in that run: begin, end."""
    notes: tuple[Sentence, ...] = ()
