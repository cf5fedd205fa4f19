"""How old a price is, and whether it is too old to be relied on.

Sources date a price by a day, a month or a year, or not at all: an age is a range of days, never a guess within it.
"""

from __future__ import annotations

import calendar
from datetime import date
from typing import NamedTuple

OLD_DAYS = 90
"""Clouds change prices about this often; gpuhunt and SkyPilot publish theirs daily."""


class Age(NamedTuple):
    """Days since a price was asked: between ``least`` and ``most``, which are equal where the day is known."""

    least: int
    most: int

    @property
    def is_old(self) -> bool:
        """Whether it may be older than ``OLD_DAYS``."""
        return self.most > OLD_DAYS

    @property
    def days(self) -> int | None:
        """The days, where they are known exactly."""
        return self.least if self.least == self.most else None


def age(as_of: str | None, today: date) -> Age | None:
    """The age of a price of the ISO date ``as_of``, which may be a month or a year; ``None`` if it is undated.

    Of a period that is not over yet, only its days until ``today`` count.
    """
    if as_of is None:
        return None
    year, month, day = (*map(int, as_of.split("-")), None, None)[:3]
    assert year is not None
    first = date(year, month or 1, day or 1)
    last_month = month or 12
    last = date(year, last_month, day or calendar.monthrange(year, last_month)[1])
    return Age(max(0, (today - last).days), (today - first).days)
