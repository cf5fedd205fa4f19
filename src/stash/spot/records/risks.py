"""What is known and foreseen of spot machines, as records: markets and revocations.

Holds numbers; how they are found is ``spot/risk``'s business. Seconds and US dollars; ``None`` means "not known".
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from stash.core.intervals import Interval
from stash.core.records.base import Count, Number, Record, Sentence


class Obtainable(Record):
    """How many machines could be had, tick by tick."""

    gap_seconds: Annotated[Number, Field(ge=1e-3, le=1e9)]
    machines: tuple[Count, ...] = Field(min_length=1)


# What revocations do to a plan


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
    mean_seconds: Number | None
    """``None``: beyond what can be stated."""
    why: Sentence


class FleetRisk(Record):
    """A plan's fleet where machines are revoked."""

    how: Literal["Monte Carlo", "replay"]
    p_deadline: Interval
    """With what the pool says of its own uncertainty."""
    dollars: Interval
    """Mean; a late run is paid until the deadline."""
    revocations: Number
    """Mean, of all machines."""
    runs: Count
    lives: tuple[TypeLife, ...]
    on_demand_dollars: Number | None
    """Of the cheapest fleet on demand that is in time; ``None`` without prices, or if there is none."""
    beyond: tuple[Sentence, ...] = ()
    advice: Sentence
    weighed: Count = 1
    """Fleets whose risk was computed until this one was chosen."""
