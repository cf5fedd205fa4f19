"""Measured quantities in words: ``9.21 ± 0.30 GB/s``, ``9.2 Gbit/s``, ``GPUs 0, 1 and 3``.

Turns numbers into text and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stash.base.stats.intervals import Interval
from stash.base.words.units import format_bytes, format_rate, format_seconds

Unit = Literal["bytes/s", "samples/s", "seconds", "bytes", "fraction", "count"]

_BITS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
_STEPS: dict[Unit, tuple[tuple[float, str], ...]] = {
    "bytes/s": ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
    "samples/s": ((1.0, "samples/s"),),
    "seconds": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "fraction": ((0.01, "%"),),
    "count": ((1.0, ""),),
}
_LOPSIDED = 3.0
"""An interval this much longer on one side is shown with both its arms."""


def quantity(measured: Interval, unit: Unit) -> str:
    """``"9.21 ± 0.30 GB/s"``; without an interval ``"9.21 GB/s (± unknown)"``."""
    return _joined(measured, _STEPS[unit])


def bits(measured: Interval) -> str:
    """A rate measured in bytes per second, in the unit of networks: ``"9.21 ± 0.30 Gbit/s"``."""
    return _joined(measured.scaled(8), _BITS)


def parts(measured: Interval, unit: Unit) -> tuple[str, str]:
    """Value with its unit, and ``± half-width`` (or both arms) in the same unit, for two columns of a table."""
    return _parts(measured, _STEPS[unit])


def bits_parts(measured: Interval) -> tuple[str, str]:
    """Like ``parts``, for networks."""
    return _parts(measured.scaled(8), _BITS)


def plain_bits(bytes_per_second: float) -> str:
    """A network's rate without an interval: ``"25 Gbit/s"``."""
    scale, name = _step(bytes_per_second * 8, _BITS)
    return f"{bytes_per_second * 8 / scale:.3g} {name}"


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


def _step(value: float, steps: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    # What three digits round to 1000 belongs to the next unit.
    return next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])


def _parts(measured: Interval, steps: tuple[tuple[float, str], ...]) -> tuple[str, str]:
    scale, name = _step(measured.value, steps)
    shown = measured.value / scale
    decimals = 0 if abs(shown) >= 100 else 1 if abs(shown) >= 10 else 2
    value = f"{shown:.{decimals}f} {name}" if name else f"{shown:g}"
    if measured.low is None or measured.high is None:
        return value, "± unknown"
    above, below = (measured.high - measured.value) / scale, (measured.value - measured.low) / scale
    half = max(above, below)
    if half > _LOPSIDED * min(above, below) and half >= 10.0**-decimals:
        return value, f"+{above:.{decimals}f} −{below:.{decimals}f}"
    smallest = 10.0**-decimals
    return value, f"± <{smallest:.{decimals}f}" if half < smallest / 2 else f"± {half:.{decimals}f}"


def _joined(measured: Interval, steps: tuple[tuple[float, str], ...]) -> str:
    value, spread = _parts(measured, steps)
    number, _, name = value.partition(" ")
    return f"{value} ({spread})" if spread == "± unknown" else f"{number} {spread} {name}".strip()
