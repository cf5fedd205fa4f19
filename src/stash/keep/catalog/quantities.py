"""Sizes, rates, prices and powers as people type them for the catalog, held to plausible bounds.

Stricter than ``base.words.units``, because a price list with a wrong unit does silent harm: a number needs its unit,
``Gb/s`` is refused as ambiguous, and a price must be in US dollars per hour. Every function raises UnitError.
"""

from __future__ import annotations

import re

from stash.base.errors import UnitError
from stash.base.words.units import parse_bytes, parse_dollars, parse_price, parse_rate

_CURRENCIES = re.compile(r"[€£¥₹₽₩]|\b(eur|gbp|jpy|cny|rmb|inr|chf|cad|aud|sek|krw|euros?|pounds?|yen)\b", re.I)
_PERIODS = re.compile(
    r"(/|\bper|\ba)\s*(s|sec|second|min|minute|d|day|w|week|mo|month|y|yr|year)s?\b|\b(daily|monthly|yearly)\b", re.I
)
_POWER = re.compile(r"(\d+\.?\d*|\.\d+)\s*(k)?w", re.I)
_PERCENT = re.compile(r"(\d+\.?\d*|\.\d+)\s*%")


def size(given: object) -> float:
    """Bytes in a memory or disk size such as "80GiB", between 64 MiB and 10 PB."""
    text = _text(given, '"80GiB"')
    return _between(parse_bytes(text), 2**26, 1e16, text, "a size")


def rate(given: object) -> float:
    """Bytes per second in a rate such as "25gbit" or "1.2GB/s", between 1 MB/s and 100 TB/s."""
    text = _text(given, '"25gbit" or "1.2GB/s"')
    if re.search(r"[kKmMgGtT]b(/s|ps)?\s*$", text):
        raise UnitError(f"{text!r} may mean bits or bytes; write 25gbit or 3.1GB/s")
    return _between(parse_rate(text), 1e6, 1e14, text, "a rate")


def price(given: object) -> float:
    """Dollars per hour in a price such as "$3.06/h", between 0.1 cents and 10,000 dollars."""
    text = _dollars(given, "$3.06/h")
    if _PERIODS.search(text):
        raise UnitError(f"the price {text!r} is not per hour; convert it and write it like $3.06/h")
    return _between(parse_price(text), 1e-3, 1e4, text, "a price per hour")


def purchase(given: object) -> float:
    """Dollars in a sum such as "$180000" or "$180k", between 100 dollars and 100 million."""
    text = _dollars(given, "$180000")
    return _between(parse_dollars(text.replace(",", "")), 100, 1e8, text, "what a machine was bought for")


def power(given: object) -> float:
    """Watts in a power such as "6kW" or "800 W", between 10 W and 1 MW."""
    text = _text(given, '"6kW"')
    match = _POWER.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"cannot read the power {text!r}; write it like 6kW or 800W")
    return _between(float(match[1]) * (1e3 if match[2] else 1.0), 10, 1e6, text, "what a machine draws")


def power_price(given: object) -> float:
    """Dollars per kilowatt-hour in a price such as "$0.12/kWh", between 0.1 cents and 10 dollars."""
    text = _dollars(given, "$0.12/kWh")
    amount, slash, unit = text.lower().rpartition("/")
    if not slash or unit.strip() != "kwh":
        raise UnitError(f"the price of power {text!r} is not per kWh; convert it and write it like $0.12/kWh")
    return _between(parse_dollars(amount), 1e-3, 10, text, "a price of power")


def share(given: object) -> float:
    """A share such as "60%", above 0 and up to 1."""
    text = _text(given, '"60%"')
    match = _PERCENT.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"cannot read the share {text!r}; write it like 60%")
    return _between(float(match[1]) / 100, 1e-3, 1, text, "a share of the time")


def _dollars(given: object, example: str) -> str:
    text = _text(given, f'"{example}"')
    if _CURRENCIES.search(text):
        raise UnitError(f"the price {text!r} is not in US dollars; convert it and write it like {example}")
    return text


def _text(given: object, example: str) -> str:
    if not isinstance(given, str):
        raise UnitError(f"{given!r} has no unit; write it like {example}")
    if re.fullmatch(r"\s*[\d.]+\s*", given):
        raise UnitError(f"{given.strip()!r} has no unit; write it like {example}")
    return given


def _between(value: float, least: float, most: float, text: str, what: str) -> float:
    if value == 0:
        raise UnitError(f"{text!r} is zero; leave it out if it is not known")
    if not least <= value <= most:
        raise UnitError(f"{text!r} cannot be {what}; check its unit")
    return value
