"""How old a price is, and whether it is too old to be relied on.

Sources date a price by a day, a month or a year, or not at all: an age is a range of days, never a guess within it.
"""

from __future__ import annotations

import calendar
import re
from datetime import date
from typing import NamedTuple

_DATE = re.compile(r"[0-9]{4}(-(?!00)[0-9]{2}(-(?!00)[0-9]{2})?)?")
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
    first, last = _period(as_of)
    return Age(max(0, (today - last).days), (today - first).days)


def is_date(text: str) -> bool:
    """Whether ``text`` is an ISO date, a month or a year, as ``age`` takes it."""
    if not _DATE.fullmatch(text):
        return False
    try:
        _period(text)
    except ValueError:
        return False
    return True


def _period(as_of: str) -> tuple[date, date]:
    """Its first and its last day; raises ValueError where there are none."""
    year, *rest = map(int, as_of.split("-"))
    month, day = (*rest, 0, 0)[:2]
    first = date(year, month or 1, day or 1)
    last_month = month or 12
    return first, date(year, last_month, day or calendar.monthrange(year, last_month)[1])
