"""Quantities with units: "10gbit", "1.2 GB/s", "250 ms", "$3.06/h".

Knows how people write sizes, rates, durations and prices, and prints them back with few digits.
Decimal prefixes are powers of 1000 (kB, MB, Gbit), binary ones of 1024 (KiB, MiB). Inside Stash
every number is in base units: bytes, bytes per second, seconds, dollars per hour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from stash.base.errors import UnitError
from stash.base.printable import shortened
from stash.base.words.rounding import scale_for

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
BITS = ((1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s"))
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))

_PREFIX = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}
_CURRENCIES = ("$", "usd", "dollars", "dollar")
_LONGEST = 100
"""Characters of a quantity."""
_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(.*?)\s*$", re.IGNORECASE)


def _split(text: str, kind: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(text) if len(text) <= _LONGEST else None
    if match is None or not math.isfinite(float(match[1])):
        raise UnitError(f"cannot read the {kind} {shortened(text, _LONGEST)!r}; write it like {example}")
    return float(match[1]), match[2]


def parse_bytes(text: str) -> float:
    """Bytes in a size such as ``"110 kB"``, ``"2GiB"`` or ``"512"``; raises UnitError."""
    value, unit = _split(text, "size", '"512MB"')
    scale = _PREFIX.get(unit.lower().removesuffix("b").removesuffix("byte"))
    if scale is None:
        raise UnitError(f"unknown size unit {unit!r} in {text!r}; use B, kB, MB, GB, TB or KiB, MiB, GiB")
    return value * scale


def parse_rate(text: str) -> float:
    """Bytes per second in a rate such as ``"10gbit"``, ``"25 Gbit/s"`` or ``"1.2 GB/s"``; raises UnitError."""
    value, unit = _split(text, "rate", '"10gbit" or "1.2GB/s"')
    name = unit.lower().removesuffix("/s").removesuffix("ps")
    for suffix, divisor in (("bits", 8.0), ("bit", 8.0), ("b", 1.0)):
        if name.endswith(suffix) and name.removesuffix(suffix) in _PREFIX:
            return value * _PREFIX[name.removesuffix(suffix)] / divisor
    raise UnitError(f"unknown rate unit {unit!r} in {text!r}; use bit, kbit, mbit, gbit or kB/s, MB/s, GB/s")


def parse_seconds(text: str, likely: Sequence[str] = ("h", "m", "s"), named: str = "") -> float:
    """Seconds in a duration such as ``"250 ms"`` or ``"2min"``; raises UnitError.

    A number without a unit is refused, unless it is 0 or the name of what it is given for says the unit (``named``):
    24 may be meant as hours as well as seconds. The message offers the ``likely`` units.
    """
    value, unit = _split(text, "duration", '"250ms" or "60s"')
    unit = unit or named
    if not unit and value:
        first, last = [f"{text.strip()}{each}" for each in likely[:-1]], f"{text.strip()}{likely[-1]}"
        raise UnitError(f"{text.strip()} what? type {', '.join(first)} or {last}")
    scale = _SECONDS.get(unit.lower() or "s")
    if scale is None:
        raise UnitError(f"unknown time unit {unit!r} in {text!r}; use ns, us, ms, s, min, h or d")
    return value * scale


def parse_price(text: str) -> float:
    """Dollars per hour in a price such as ``"$3.06/h"``; raises UnitError for other currencies."""
    cleaned = text.strip().lower().removeprefix("$").removesuffix("/hour").removesuffix("/h").removesuffix("usd")
    value, unit = _split(cleaned, "price", '"$3.06/h"')
    if unit:
        raise UnitError(f'cannot read the price {text!r}; prices are in US dollars per hour, like "$3.06/h"')
    return value


def parse_dollars(text: str) -> float:
    """Dollars in a sum such as ``"300"``, ``"$1.5k"`` or ``"300 USD"``; raises UnitError for other currencies."""
    cleaned = text.strip().lower().removeprefix("$")
    value, unit = _split(cleaned, "sum", '"300"')
    for name in _CURRENCIES:
        unit = unit.removesuffix(name).strip()
    if unit not in ("", "k", "m"):
        raise UnitError(f'cannot read the sum {text!r}; sums are in US dollars, like "300"')
    return value * _PREFIX[unit]


def parse_count(text: str) -> float:
    """A number of things such as ``"1281167"``, ``"1,281,167"``, ``"50M"`` or ``"300B"``; raises UnitError."""
    value, unit = _split(text.replace(",", ""), "number", '"1281167" or "50M"')
    scale = {**_PREFIX, "b": 1e9}.get(unit.lower())
    if scale is None or unit.lower().endswith("i"):
        raise UnitError(f"unknown unit {unit!r} in {text!r}; use k, M, B or T")
    return value * scale


def format_seconds(seconds: float) -> str:
    """A duration with three digits: ``0.0123`` is ``"12.3 ms"``; NaN is ``"unknown"``."""
    if math.isnan(seconds):
        return "unknown"
    if abs(seconds) >= 120:
        return f"{seconds / 60:.1f} min"
    return scale_for(seconds, SECONDS).text(seconds)


def format_bytes(count: float) -> str:
    """A size with three digits and a decimal prefix: ``46_800_000`` is ``"46.8 MB"``."""
    return scale_for(count, BYTES).text(count)


def format_rate(bytes_per_second: float) -> str:
    """A rate with three digits in bytes per second: ``1.2e9`` is ``"1.20 GB/s"``."""
    return format_bytes(bytes_per_second) + "/s"


def format_bits(bytes_per_second: float) -> str:
    """A network's rate in bits per second, as links are named: ``1.25e9`` is ``"10 Gbit/s"``."""
    scale = scale_for(bytes_per_second * 8, BITS)
    return f"{bytes_per_second * 8 / scale.size:.3g} {scale.unit}"


def pace(samples_per_second: float) -> str:
    """``"70.3"`` or ``"1,783"``: samples per second, without the unit."""
    return f"{samples_per_second:,.{0 if samples_per_second >= 1000 else 1}f}"
