"""Quantities as people type them: times, sizes, rates, prices, revocations; and as many digits as a number deserves.

Knows texts and numbers. What options they belong to, the commands know.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stash.core.errors import UnitError
from stash.core.printable import shorten_text

# Digits for people: the unit and decimals that fit a number, and a rounding that keeps a sum.


class Scale(NamedTuple):
    """A unit fit for a number: its name, its size in base units, and how many decimals to show."""

    unit: str
    size: float
    decimals: int

    def number(self, value: float) -> str:
        """A value in base units as a number of this unit, without its name."""
        return f"{value / self.size:,.{self.decimals}f}"

    def text(self, value: float) -> str:
        """The same with the unit's name: ``"46.8 MB"``."""
        return f"{self.number(value)} {self.unit}"


def scale_for(value: float, units: Sequence[tuple[float, str]], digits: int = 3) -> Scale:
    """The unit out of ``units`` (size and name, largest first) that shows ``value`` with ``digits`` digits.

    It is the largest of which there is at least one after rounding: 999.6 MB are 1.00 GB. Of the smallest unit
    there may be less than one, and then there are fewer digits.
    """
    one = 1 - 0.5 * 10.0**-digits
    size, unit = next((step for step in units if abs(value) >= one * step[0]), units[-1])
    rounded = float(f"{value / size:.{digits - 1}e}")
    return Scale(unit, size, min(digits - 1, significant_decimals(rounded, digits)))


def significant_decimals(size: float, digits: int) -> int:
    """How many decimals show ``size`` with ``digits`` significant digits, never negative."""
    if not size or not math.isfinite(size):
        return digits
    return max(0, digits - 1 - math.floor(math.log10(abs(size))))


def round_to_sum(values: Sequence[float], decimals: int) -> list[float]:
    """``values`` rounded to ``decimals`` so that they add up to their rounded sum (largest remainder).

    Each changes by less than one unit of the last decimal. All values must be finite.
    """
    unit = 10.0**decimals
    scaled = [value * unit for value in values]
    whole = [math.floor(value) for value in scaled]
    missing = round(sum(scaled)) - sum(whole)
    by_remainder = sorted(range(len(values)), key=lambda i: whole[i] - scaled[i])
    for i in by_remainder[:missing]:
        whole[i] += 1
    return [round(value / unit, max(0, decimals)) for value in whole]


def format_count(number: int, noun: str) -> str:
    """``"1 worker"``, ``"3 workers"``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def find_nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The ``count`` known names most like ``name``, best first; empty when none is alike."""
    folded = {item.lower(): item for item in known}
    found = difflib.get_close_matches(name.lower(), folded, n=count, cutoff=0.5)
    return [folded[item] for item in found]


# Quantities with units: "10gbit", "1.2 GB/s", "250 ms", "$3.06/h". Decimal prefixes are powers of 1000, binary ones
# (KiB) of 1024. Inside Stash every number is in base units: bytes, bytes per second, seconds, dollars per hour.

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
_PARTS = re.compile(
    r"(?=(?:[0-9]+[a-z]+){2})(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m(?:in)?)?(?:([0-9]+)s)?"
)
"""Several units, the largest first, like ``1h30m``."""
_PART_SECONDS = (86400.0, 3600.0, 60.0, 1.0)
_CURRENCIES = ("$", "usd", "dollars", "dollar")
_MAX_CHARACTERS = 100
"""Characters of a quantity."""
_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(.*?)\s*$", re.IGNORECASE)


def _split(text: str, kind: str, example: str) -> tuple[float, str]:
    match = _NUMBER.match(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None or not math.isfinite(float(match[1])):
        raise UnitError(
            f"cannot read the {kind} {shorten_text(text, _MAX_CHARACTERS)!r}; write it like {example}"
        )
    return float(match[1]), match[2]


def parse_bytes(text: str) -> float:
    """Bytes in a size such as ``"110 kB"``, ``"2GiB"`` or ``"512"``; raises UnitError."""
    value, unit = _split(text, "size", '"512MB"')
    scale = _PREFIX.get(unit.lower().removesuffix("b").removesuffix("byte"))
    if scale is None:
        raise UnitError(
            f"unknown size unit {unit!r} in {text!r}; use B, kB, MB, GB, TB or KiB, MiB, GiB"
        )
    return value * scale


def parse_rate(text: str) -> float:
    """Bytes per second in a rate such as ``"10gbit"``, ``"25 Gbit/s"`` or ``"1.2 GB/s"``; raises UnitError.

    ``Gb/s`` and ``Gbps`` are refused: people mean bits by them as well as bytes.
    """
    value, unit = _split(text, "rate", '"10gbit" or "1.2GB/s"')
    if re.fullmatch(r"[kKmMgGtT]b(/s|ps)?", unit):
        raise UnitError(f"{text!r} may mean bits or bytes; write 25gbit or 3.1GB/s")
    name = unit.lower().removesuffix("/s").removesuffix("ps")
    for suffix, divisor in (("bits", 8.0), ("bit", 8.0), ("b", 1.0)):
        if name.endswith(suffix) and name.removesuffix(suffix) in _PREFIX:
            return value * _PREFIX[name.removesuffix(suffix)] / divisor
    if not unit:
        bare = text.strip()
        raise UnitError(f"{bare!r} has no unit; type {bare}gbit or {bare}MB/s")
    raise UnitError(
        f"unknown rate unit {unit!r} in {text!r}; use bit, kbit, mbit, gbit or kB/s, MB/s, GB/s"
    )


def parse_seconds(text: str, likely: Sequence[str] = ("h", "m", "s"), named: str = "") -> float:
    """Seconds in a duration such as ``"250 ms"``, ``"2min"`` or ``"1h30m"``; raises UnitError.

    A number without a unit is refused, unless it is 0 or the name of what it is given for says the unit (``named``):
    24 may be meant as hours as well as seconds. The message offers the ``likely`` units.
    """
    if parts := _PARTS.fullmatch(text[:_MAX_CHARACTERS].strip().lower()):
        return sum(
            float(amount or 0) * scale
            for amount, scale in zip(parts.groups(), _PART_SECONDS, strict=True)
        )
    value, unit = _split(text, "duration", '"250ms" or "60s"')
    unit = unit or named
    if not unit and value:
        first = [f"{text.strip()}{each}" for each in likely[:-1]]
        last = f"{text.strip()}{likely[-1]}"
        raise UnitError(f"{text.strip()} what? type {', '.join(first)} or {last}")
    scale = _SECONDS.get(unit.lower() or "s")
    if scale is None:
        raise UnitError(f"unknown time unit {unit!r} in {text!r}; use ns, us, ms, s, min, h or d")
    return value * scale


def parse_price(text: str) -> float:
    """Dollars per hour in a price such as ``"$3.06/h"``; raises UnitError for other currencies."""
    cleaned = (
        text.strip()
        .lower()
        .removeprefix("$")
        .removesuffix("/hour")
        .removesuffix("/h")
        .removesuffix("usd")
    )
    value, unit = _split(cleaned, "price", '"$3.06/h"')
    if unit:
        raise UnitError(
            f'cannot read the price {text!r}; prices are in US dollars per hour, like "$3.06/h"'
        )
    return value


def parse_dollars(text: str) -> float:
    """Dollars in a sum such as ``"300"``, ``"$1.5k"`` or ``"300 USD"``; raises UnitError for other currencies."""
    if _PRICE_CURRENCIES.search(text):
        raise UnitError(f"{text!r} is not in US dollars; convert it and write it like 300")
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


def format_minutes(seconds: float) -> str:
    """A time to wait, to the second: ``200`` is ``"3 min 20 s"``, ``300`` is ``"5 min"``."""
    minutes, rest = divmod(round(seconds), 60)
    parts = [f"{minutes} min"] if minutes else []
    parts += [f"{rest} s"] if rest or not minutes else []
    return " ".join(parts)


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


def format_pace(samples_per_second: float) -> str:
    """``"70.3"`` or ``"1,783"``: samples per second, without the unit."""
    return f"{samples_per_second:,.{0 if samples_per_second >= 1000 else 1}f}"


# How often spot machines are revoked: a share of machines in a period, ``5-10%/month``, becomes the rate that takes
# that share, −ln(1 − p) / period. AWS's last band, >20 %, has no upper end, so it has no rate.

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
_RATE_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)"
_TEXT = re.compile(
    rf"\s*(<|>)?\s*{_RATE_NUMBER}\s*(?:[-–]\s*{_RATE_NUMBER})?\s*(%)?\s*/\s*([a-z]{{1,9}})\s*",
    re.IGNORECASE,
)
_EXAMPLE = "10%/month, 5-10%/month or 0.02/h"


def parse_interruptions(text: str) -> tuple[float, float]:
    """Revocations per machine and hour, (least, most); raises UnitError."""
    match = _TEXT.fullmatch(text) if len(text) <= 100 else None
    typed = shorten_text(text, 100)
    if match is None or match[5].lower() not in _HOURS or (match[1] and match[3]):
        raise UnitError(f"cannot read the interruptions {typed!r}; write them like {_EXAMPLE}")
    if match[1] == ">":
        raise UnitError(
            f"{typed!r} has no upper end, so nothing follows from it; give a figure, like 30%/month"
        )
    low = 0.0 if match[1] == "<" else float(match[2])
    high = float(match[3] or match[2])
    if high < low:
        raise UnitError(f"{typed!r} ends before it begins; write it like {_EXAMPLE}")
    hours = _HOURS[match[5].lower()]
    if not match[4]:
        return low / hours, high / hours
    if high >= 100:
        raise UnitError(
            f"{typed!r}: a share of machines is below 100%; a rate is written without %, like 1.5/month"
        )
    return -math.log1p(-low / 100) / hours, -math.log1p(-high / 100) / hours


# Quantities of the catalog, stricter since a price list with a wrong unit does silent harm: a number needs its unit,
# and a price must be in US dollars per hour. All raise UnitError.

_PRICE_CURRENCIES = re.compile(
    r"[€£¥₹₽₩]|\b(eur|gbp|jpy|cny|rmb|inr|chf|cad|aud|sek|krw|euros?|pounds?|yen)\b", re.I
)
_PERIODS = re.compile(
    r"(/|\bper|\ba)\s*(s|sec|second|min|minute|d|day|w|week|mo|month|y|yr|year)s?\b|\b(daily|monthly|yearly)\b",
    re.I,
)
_POWER = re.compile(r"(\d+\.?\d*|\.\d+)\s*(k)?w", re.I)


def validate_size(given: object) -> float:
    """Bytes in a memory or disk size such as "80GiB", between 64 MiB and 10 PB."""
    text = _text(given, '"80GiB"')
    return _check_range(parse_bytes(text), 2**26, 1e16, text, "a size")


def validate_rate(given: object) -> float:
    """Bytes per second in a rate such as "25gbit" or "1.2GB/s", between 1 MB/s and 100 TB/s."""
    text = _text(given, '"25gbit" or "1.2GB/s"')
    return _check_range(parse_rate(text), 1e6, 1e14, text, "a rate")


def validate_price(given: object) -> float:
    """Dollars per hour in a price such as "$3.06/h", between 0.1 cents and 10,000 dollars."""
    text = _dollars(given, "$3.06/h")
    if _PERIODS.search(text):
        raise UnitError(f"the price {text!r} is not per hour; convert it and write it like $3.06/h")
    return _check_range(parse_price(text), 1e-3, 1e4, text, "a price per hour")


def validate_purchase(given: object) -> float:
    """Dollars in a sum such as "$180000" or "$180k", between 100 dollars and 100 million."""
    text = _dollars(given, "$180000")
    return _check_range(
        parse_dollars(text.replace(",", "")), 100, 1e8, text, "what a machine was bought for"
    )


def validate_power(given: object) -> float:
    """Watts in a power such as "6kW" or "800 W", between 10 W and 1 MW."""
    text = _text(given, '"6kW"')
    match = _POWER.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"cannot read the power {text!r}; write it like 6kW or 800W")
    return _check_range(
        float(match[1]) * (1e3 if match[2] else 1.0), 10, 1e6, text, "what a machine draws"
    )


def power_price(given: object) -> float:
    """Dollars per kilowatt-hour in a price such as "$0.12/kWh", between 0.1 cents and 10 dollars."""
    text = _dollars(given, "$0.12/kWh")
    amount, slash, unit = text.lower().rpartition("/")
    if not slash or unit.strip() != "kwh":
        raise UnitError(
            f"the price of power {text!r} is not per kWh; convert it and write it like $0.12/kWh"
        )
    return _check_range(parse_dollars(amount), 1e-3, 10, text, "a price of power")


def _dollars(given: object, example: str) -> str:
    text = _text(given, f'"{example}"')
    if _PRICE_CURRENCIES.search(text):
        raise UnitError(
            f"the price {text!r} is not in US dollars; convert it and write it like {example}"
        )
    if text.strip().startswith("-"):
        raise UnitError(f"{text!r} is negative; write it like {example}")
    return text


def _text(given: object, example: str) -> str:
    if not isinstance(given, str):
        raise UnitError(f"{given!r} has no unit; write it like {example}")
    if re.fullmatch(r"\s*[\d.]+\s*", given):
        raise UnitError(f"{given.strip()!r} has no unit; write it like {example}")
    return given


def _check_range(value: float, least: float, most: float, text: str, what: str) -> float:
    if value == 0:
        raise UnitError(f"{text!r} is zero; leave it out if it is not known")
    if not least <= value <= most:
        raise UnitError(f"{text!r} cannot be {what}; check its unit")
    return value
