"""Quantities in words: ``9.21 ± 0.30 GB/s``, ``9.2 Gbit/s``, ``20.7 ± 0.8 h``, ``$338 ± 14``, ``GPUs 0, 1 and 3``.

How a number with its spread is written is decided here, for every report. Turns numbers into text and judges
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from stash.core.units import (
    BITS,
    BYTES,
    SECONDS,
    Scale,
    format_bytes,
    format_rate,
    format_seconds,
    scale_for,
    significant_decimals,
)

if TYPE_CHECKING:
    from stash.core.intervals import Interval

Unit = Literal["bytes/s", "FLOP/s", "calls/s", "samples/s", "seconds", "bytes", "fraction", "count"]
Steps = tuple[tuple[float, str], ...]

_STEPS: dict[Unit, Steps] = {
    "bytes/s": tuple((size, f"{name}/s") for size, name in BYTES),
    "FLOP/s": ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s")),
    "calls/s": ((1e3, "thousand calls/s"), (1.0, "calls/s")),
    "samples/s": ((1.0, "samples/s"),),
    "seconds": SECONDS,
    "bytes": BYTES,
    "fraction": ((0.01, "%"),),
    "count": ((1.0, ""),),
}
_LOPSIDED = 3.0
"""An interval this much longer on one side is shown with both its arms."""
_DWARFED = 100.0
"""An interval so many times its value decides the unit of both."""
_UNKNOWN = "± unknown"


def plus_minus(measured: Interval, scale: Scale) -> str:
    """The spread of a number shown on ``scale``: ``"± 0.30"``, without the unit.

    The half-width is the longer arm's; of a lopsided interval both are shown, ``"+0.37 −0.11"``, and where a single
    one would let what is never negative seem to be. One too narrow for
    the decimals is ``"± <0.01"``, and one that is unknown ``"± unknown"``: neither is ever shown as zero.
    """
    if measured.low is None or measured.high is None:
        return _UNKNOWN
    above = measured.high - measured.value
    below = measured.value - measured.low
    half = max(above, below)
    smallest = 10.0**-scale.decimals
    lopsided = half > _LOPSIDED * min(above, below) or measured.low >= 0 > measured.value - half
    if lopsided and half >= smallest * scale.size:
        return f"+{scale.number(above)} −{scale.number(below)}"
    if half < smallest * scale.size / 2:
        return f"± <{smallest:.{scale.decimals}f}"
    return f"± {scale.number(half)}"


def format_quantity(measured: Interval, unit: Unit) -> str:
    """``"9.21 ± 0.30 GB/s"``; without an interval ``"9.21 GB/s (± unknown)"``."""
    return _join_spread(*split_spread(measured, unit))


def format_bit_rate(measured: Interval) -> str:
    """A rate measured in bytes per second, in the unit of networks: ``"9.21 ± 0.30 Gbit/s"``."""
    return _join_spread(*bits_parts(measured))


def _join_spread(shown: str, spread: str) -> str:
    number, _, name = shown.partition(" ")
    return f"{shown} ({spread})" if spread == _UNKNOWN else f"{number} {spread} {name}".strip()


def split_spread(measured: Interval, unit: Unit) -> tuple[str, str]:
    """Value with its unit, and ``± half-width`` (or both arms) in the same unit, for two columns of a table."""
    ends = [measured.value if end is None else end for end in (measured.low, measured.high)]
    half = max(abs(end - measured.value) for end in ends)
    # A change of nothing, give or take milliseconds, has the unit of what is given or taken.
    scale = scale_for(
        half if half > _DWARFED * abs(measured.value) else measured.value, _STEPS[unit]
    )
    shown = scale.text(measured.value) if scale.unit else f"{measured.value:g}"
    return shown, plus_minus(measured, scale)


def bits_parts(measured: Interval) -> tuple[str, str]:
    """Do as ``split_spread`` does, in bits, for networks."""
    bits = measured.scale(8)
    scale = scale_for(bits.value, BITS)
    return scale.text(bits.value), plus_minus(bits, scale)


def format_fact(value: float, unit: Unit) -> str:
    """A fact's value: ``"50.0 GB/s"``, ``"64"``."""
    if unit == "bytes/s":
        return format_rate(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    if unit in ("FLOP/s", "calls/s", "samples/s"):
        return scale_for(value, _STEPS[unit]).text(value)
    return f"{value:.0%}" if unit == "fraction" else f"{value:g}"


def join_names(names: Sequence[str], most: int = 6) -> str:
    """``"0, 1 and 3"``; beyond ``most`` the rest is counted."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


# Hours and dollars of a whole training

HOUR, DAY = 3600.0, 86400.0
_SPANS = (
    (100 * HOUR, DAY, "days"),
    (0.995 * HOUR, HOUR, "h"),
    (99.5, 60.0, "min"),
    (0.0, 1.0, "s"),
)
"""From how many seconds on, the unit's size, its name."""
_MAX_DECIMALS = 2
_MIN_SHARE, _MAX_SHARE = 0.01, 0.99


def span_scale(seconds: float) -> Scale:
    """The unit in which ``seconds`` of work are shown, with three digits: hours up to a hundred, then days."""
    _, size, unit = next(step for step in _SPANS if abs(seconds) >= step[0] or not step[0])
    number = seconds / size
    if not number or not math.isfinite(number):
        return Scale(unit, size, 0)
    return Scale(unit, size, min(_MAX_DECIMALS, significant_decimals(float(f"{number:.2e}"), 3)))


def format_span(seconds: float) -> str:
    """``"20.7 h"``, ``"5.0 min"``, ``"4.4 days"``; whole ones without decimals: ``"24 h"``."""
    scale = span_scale(seconds)
    whole = seconds / scale.size
    return f"{whole:,.0f} {scale.unit}" if whole == round(whole) else scale.text(seconds)


def span_interval(time: Interval, scale: Scale | None = None) -> str:
    """``"20.7 ± 0.8 h"``, on ``scale`` if one is given."""
    size = span_scale(time.value) if scale is None else scale
    return f"{size.number(time.value)} {plus_minus(time, size)} {size.unit}"


def format_dollars(value: float, decimals: int | None = None) -> str:
    """``"$338"``, ``"$4.08"``, ``"−$12.30"``; with as many ``decimals`` as are given."""
    shown = money_decimals(value) if decimals is None else decimals
    return f"{'−' if value < 0 else ''}${abs(value):,.{shown}f}"


def dollars_interval(money: Interval) -> str:
    """``"$338 ± 14"``."""
    return f"{format_dollars(money.value)} {plus_minus(money, Scale('$', 1.0, money_decimals(money.value)))}"


def format_chance(probability: float | None, limit: float | None = None) -> str:
    """``"98%"``, ``"> 99%"``; a probability from draws is never shown as certain, nor one of a limit left out."""
    if probability is None:
        return "" if limit is None else "unknown"
    if probability > _MAX_SHARE:
        return f"> {_MAX_SHARE:.0%}"
    if probability < _MIN_SHARE:
        return f"< {_MIN_SHARE:.0%}"
    return f"{probability:.0%}"


def money_decimals(value: float) -> int:
    """2 below a hundred dollars, as prices have them, else 0."""
    return 0 if abs(value) >= 99.995 else 2
