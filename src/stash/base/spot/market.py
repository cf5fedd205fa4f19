"""What was watched of spot machines: how many could be had, how long they lived, and what they cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from stash.base.records.base import Count, Number, Record


class Obtainable(Record):
    """How many machines could be had, tick by tick."""

    gap_seconds: Annotated[Number, Field(ge=1e-3, le=1e9)]
    machines: tuple[Count, ...] = Field(min_length=1)
    start_seconds: Number | None = None
    """When the first tick began, since 1970; ``None`` if nobody says."""


class WatchedLives(Record):
    """Machines, each with the seconds it was seen, and whether a revocation ended them."""

    seconds: tuple[Number, ...] = Field(min_length=1)
    revoked: tuple[bool, ...]


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
