"""Sizes, rates and prices as people type them for the catalog, held to plausible bounds.

Stricter than ``base.words.units``, because a price list with a wrong unit does silent harm: a number needs its unit,
``Gb/s`` is refused as ambiguous, and a price must be in US dollars per hour. Every function raises UnitError.
"""

from __future__ import annotations

import re

from stash.base.errors import UnitError
from stash.base.words.units import parse_bytes, parse_price, parse_rate

_CURRENCIES = re.compile(r"[€£¥₹₽₩]|\b(eur|gbp|jpy|cny|rmb|inr|chf|cad|aud|sek|krw|euros?|pounds?|yen)\b", re.I)
_PERIODS = re.compile(
    r"(/|\bper|\ba)\s*(s|sec|second|min|minute|d|day|w|week|mo|month|y|yr|year)s?\b|\b(daily|monthly|yearly)\b", re.I
)


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
    text = _text(given, '"$3.06/h"')
    currency = _CURRENCIES.search(text)
    if currency:
        raise UnitError(f"the price {text!r} is not in US dollars; convert it and write it like $3.06/h")
    if _PERIODS.search(text):
        raise UnitError(f"the price {text!r} is not per hour; convert it and write it like $3.06/h")
    return _between(parse_price(text), 1e-3, 1e4, text, "a price per hour")


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
