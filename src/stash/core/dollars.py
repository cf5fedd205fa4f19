"""Hours and dollars of a whole training: ``20.7 ± 0.8 h``, ``$338 ± 14``.

How time and money of a plan are written is decided here, for every report. Turns numbers into text, judges nothing.
"""

from __future__ import annotations

import math

from stash.core.formatting import plus_minus
from stash.core.intervals import Interval
from stash.core.units import Scale, significant_decimals

HOUR, DAY = 3600.0, 86400.0
_SPANS = ((100 * HOUR, DAY, "days"), (0.995 * HOUR, HOUR, "h"), (99.5, 60.0, "min"), (0.0, 1.0, "s"))
"""From how many seconds on, the unit's size, its name."""
_MAX_DECIMALS = 2
_MIN_SHARE, _MAX_SHARE = 0.01, 0.99


def span_scale(seconds: float) -> Scale:
    """The unit in which ``seconds`` of work are shown, with three digits: hours up to a hundred, then days."""
    _, size, unit = next(step for step in _SPANS if abs(seconds) >= step[0] or not step[0])
    return Scale(unit, size, _decimals(seconds / size))


def span(seconds: float) -> str:
    """``"20.7 h"``, ``"5.0 min"``, ``"4.4 days"``; whole ones without decimals: ``"24 h"``."""
    scale = span_scale(seconds)
    whole = seconds / scale.size
    return f"{whole:,.0f} {scale.unit}" if whole == round(whole) else scale.text(seconds)


def span_interval(time: Interval, scale: Scale | None = None) -> str:
    """``"20.7 ± 0.8 h"``, on ``scale`` if one is given."""
    size = span_scale(time.value) if scale is None else scale
    return f"{size.number(time.value)} {spread(time, size)} {size.unit}"


def dollars(value: float, decimals: int | None = None) -> str:
    """``"$338"``, ``"$4.08"``, ``"−$12.30"``; with as many ``decimals`` as are given."""
    shown = money_decimals(value) if decimals is None else decimals
    return f"{'−' if value < 0 else ''}${abs(value):,.{shown}f}"


def dollars_interval(money: Interval) -> str:
    """``"$338 ± 14"``."""
    return f"{dollars(money.value)} {spread(money, Scale('$', 1.0, money_decimals(money.value)))}"


def spread(measured: Interval, scale: Scale) -> str:
    """``"± 0.8"``; ``"± ?"`` of one that is unknown."""
    return "± ?" if measured.half_width is None else plus_minus(measured, scale)


def chance(probability: float | None, limit: float | None = None) -> str:
    """``"98%"``, ``"> 99%"``; a probability from draws is never said to be certain, nor one of a limit left out."""
    if probability is None:
        return "" if limit is None else "unknown"
    if probability > _MAX_SHARE:
        return f"> {_MAX_SHARE:.0%}"
    if probability < _MIN_SHARE:
        return f"< {_MIN_SHARE:.0%}"
    return f"{probability:.0%}"


def _decimals(number: float) -> int:
    if not number or not math.isfinite(number):
        return 0
    return min(_MAX_DECIMALS, significant_decimals(float(f"{number:.2e}"), 3))


def money_decimals(value: float) -> int:
    """2 below a hundred dollars, as prices have them, else 0."""
    return 0 if abs(value) >= 99.995 else 2
