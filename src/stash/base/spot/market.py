"""What was watched of spot machines besides what could be had: how long they lived, and what they cost."""

from __future__ import annotations

from pydantic import Field, model_validator

from stash.base.records.base import Number, Record


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
