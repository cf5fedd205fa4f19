"""Measured quantities in words: ``9.21 ± 0.30 GB/s``, ``9.2 Gbit/s``, ``GPUs 0, 1 and 3``.

How a number with its spread is written is decided here, for every report. Turns numbers into text and judges
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stash.core.intervals import Interval
from stash.core.units import BITS, BYTES, SECONDS, Scale, format_bytes, format_rate, format_seconds, scale_for

Unit = Literal["bytes/s", "samples/s", "seconds", "bytes", "fraction", "count"]
Steps = tuple[tuple[float, str], ...]

_STEPS: dict[Unit, Steps] = {
    "bytes/s": tuple((size, f"{name}/s") for size, name in BYTES),
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
    one would let what is certainly positive seem to be negative. One too narrow for
    the decimals is ``"± <0.01"``, and one that is unknown ``"± unknown"``: neither is ever shown as zero.
    """
    if measured.low is None or measured.high is None:
        return _UNKNOWN
    above, below = measured.high - measured.value, measured.value - measured.low
    half, smallest = max(above, below), 10.0**-scale.decimals
    lopsided = half > _LOPSIDED * min(above, below) or measured.low > 0 > measured.value - half
    if lopsided and half >= smallest * scale.size:
        return f"+{scale.number(above)} −{scale.number(below)}"
    if half < smallest * scale.size / 2:
        return f"± <{smallest:.{scale.decimals}f}"
    return f"± {scale.number(half)}"


def quantity(measured: Interval, unit: Unit) -> str:
    """``"9.21 ± 0.30 GB/s"``; without an interval ``"9.21 GB/s (± unknown)"``."""
    return _joined(measured, _STEPS[unit])


def bits(measured: Interval) -> str:
    """A rate measured in bytes per second, in the unit of networks: ``"9.21 ± 0.30 Gbit/s"``."""
    return _joined(measured.scaled(8), BITS)


def parts(measured: Interval, unit: Unit) -> tuple[str, str]:
    """Value with its unit, and ``± half-width`` (or both arms) in the same unit, for two columns of a table."""
    return _parts(measured, _STEPS[unit])


def bits_parts(measured: Interval) -> tuple[str, str]:
    """Like ``parts``, for networks."""
    return _parts(measured.scaled(8), BITS)


def plain(value: float, unit: Unit) -> str:
    """A fact's value: ``"50.0 GB/s"``, ``"64"``."""
    if unit == "bytes/s":
        return format_rate(value)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    return f"{value:.0%}" if unit == "fraction" else f"{value:g}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """``"0, 1 and 3"``; beyond ``most`` the rest is counted."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _parts(measured: Interval, steps: Steps) -> tuple[str, str]:
    low, high = (measured.value if end is None else end for end in (measured.low, measured.high))
    half = max(high - measured.value, measured.value - low)
    # A change of nothing, give or take milliseconds, has the unit of what is given or taken.
    scale = scale_for(half if half > _DWARFED * abs(measured.value) else measured.value, steps)
    shown = scale.text(measured.value) if scale.unit else f"{measured.value:g}"
    return shown, plus_minus(measured, scale)


def _joined(measured: Interval, steps: Steps) -> str:
    shown, spread = _parts(measured, steps)
    number, _, name = shown.partition(" ")
    return f"{shown} ({spread})" if spread == _UNKNOWN else f"{number} {spread} {name}".strip()
