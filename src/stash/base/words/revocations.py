"""How often spot machines are revoked, as people and clouds write it: ``10%/month``, ``5-10%/month``, ``0.02/h``.

A share of machines in a period becomes the rate that takes that share: −ln(1 − p) / period. AWS publishes bands of
the trailing month (Spot Instance Advisor: <5 %, 5-10 %, 10-15 %, 15-20 %, >20 %); the last of them has no upper end,
and nobody can compute with it.
"""

from __future__ import annotations

import math
import re

from stash.base.errors import UnitError
from stash.base.printable import shortened

MONTH_HOURS = 730.0
"""A twelfth of 8,760 hours, as clouds bill it."""
_HOURS = {
    "h": 1.0,
    "hour": 1.0,
    "d": 24.0,
    "day": 24.0,
    "week": 168.0,
    "month": MONTH_HOURS,
    "year": 8760.0,
}
_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)"
_TEXT = re.compile(rf"\s*(<|>)?\s*{_NUMBER}\s*(?:[-–]\s*{_NUMBER})?\s*(%)?\s*/\s*([a-z]{{1,9}})\s*", re.IGNORECASE)
_EXAMPLE = "10%/month, 5-10%/month or 0.02/h"


def parse_interruptions(text: str) -> tuple[float, float]:
    """Revocations per machine and hour, (least, most); raises UnitError."""
    match = _TEXT.fullmatch(text) if len(text) <= 100 else None
    said = shortened(text, 100)
    if match is None or match[5].lower() not in _HOURS or (match[1] and match[3]):
        raise UnitError(f"cannot read the interruptions {said!r}; write them like {_EXAMPLE}")
    if match[1] == ">":
        raise UnitError(f"{said!r} has no upper end, so nothing follows from it; give a figure, like 30%/month")
    low = 0.0 if match[1] == "<" else float(match[2])
    high = float(match[3] or match[2])
    if high < low:
        raise UnitError(f"{said!r} ends before it begins; write it like {_EXAMPLE}")
    hours = _HOURS[match[5].lower()]
    if not match[4]:
        return low / hours, high / hours
    if high >= 100:
        raise UnitError(f"{said!r}: a share of machines is below 100%; a rate is written without %, like 1.5/month")
    return -math.log1p(-low / 100) / hours, -math.log1p(-high / 100) / hours
