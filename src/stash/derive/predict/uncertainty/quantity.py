"""What a forecast rests on: a number with its spread, where it comes from, and of which date.

The one type for this in predictions. A wish of the user's (``--network 100gbit``) is one too, exact by definition.
What is unknown is no quantity but ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import model_validator

from stash.base.errors import StashError
from stash.base.records import Record
from stash.base.stats.intervals import Interval

Origin = Literal["given", "measured", "scaled", "data sheet"]
"""*given*: what the user asked for, taken as exact. *measured*: on machines as they are forecast. *scaled*: measured
elsewhere, and brought here by a model. *data sheet*: published, by a vendor or by somebody who measured."""
ORIGINS: tuple[Origin, ...] = ("given", "measured", "scaled", "data sheet")
"""From the most certain to the least."""


class Quantity(Record):
    """A number in base units with the ends of its 95 % interval, both ``None`` if nobody knows its spread."""

    value: float
    low: float | None = None
    high: float | None = None
    origin: Origin
    as_of: str | None = None
    """ISO date of the measurement or the publication; ``None`` if undated."""
    source: str
    """Who says so: a file, a data sheet, an option."""

    @model_validator(mode="after")
    def _within_its_ends(self) -> Quantity:
        if not self.interval.holds_itself:
            raise StashError(f"{self.value:g} is not between {self.low} and {self.high} ({self.source})")
        return self

    @property
    def interval(self) -> Interval:
        return Interval(value=self.value, low=self.low, high=self.high)

    @property
    def spread_known(self) -> bool:
        return self.low is not None or self.origin == "given"

    def scaled(self, factor: float, origin: Origin | None = None, source: str | None = None) -> Quantity:
        """The same times a positive ``factor``; from then on of ``origin`` and ``source``, if these are given."""
        new = self.interval.scaled(factor)
        return self.model_copy(
            update={
                "value": new.value,
                "low": new.low,
                "high": new.high,
                "origin": origin or self.origin,
                "source": source or self.source,
            }
        )


def worst(origins: Iterable[Origin]) -> Origin:
    """The least certain of some origins, one at least."""
    return max(origins, key=ORIGINS.index)


def measured(interval: Interval, as_of: str | None, source: str) -> Quantity:
    """A measured interval as a quantity."""
    return Quantity(
        value=interval.value, low=interval.low, high=interval.high, origin="measured", as_of=as_of, source=source
    )


def given(value: float, option: str) -> Quantity:
    """What the user asked for with ``option``."""
    return Quantity(value=value, origin="given", source=option)


class Used(Record):
    """A fact that a part of a forecast rests on."""

    about: str
    """What it is a fact about, e.g. ``bandwidth between nodes``."""
    unit: str
    """``bytes/s``, ``1/s``, ``seconds``, ``bytes``, ``samples/s``, ``fraction`` or ``count``."""
    quantity: Quantity
