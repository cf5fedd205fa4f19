"""Values of options as people type them: times, sizes, dollars, shares, counts, names and ranges.

One parser for each kind, so that every option reads it alike. A parser takes the text and returns the value, or
raises UnitError with what is wrong and what to type; whose option it was, the caller puts before that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from stash.core.errors import UnitError
from stash.core.units import (
    parse_bytes,
    parse_count,
    parse_dollars,
    parse_price,
    parse_rate,
    parse_seconds,
    validate_power,
)

T = TypeVar("T")
MIN_PERCENT = 0.05
MAX_WHOLE = 2**31
LARGEST = 1e18
"""Of anything that is typed, as of any number in a record."""


def _above_zero(parse: Callable[[str], float]) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = -1.0 if text.strip().startswith("-") else parse(text)
        if not 0 < value < math.inf:
            raise UnitError(
                f"it must be more than 0{'' if math.isfinite(value) else ', and finite'}"
            )
        return check_bound(value)

    return read


def check_bound(value: float) -> float:
    """The value; raises UnitError if it is too large to be reckoned with."""
    if value > LARGEST:
        raise UnitError(f"it must be at most {LARGEST:g}")
    return value


duration = _above_zero(partial(parse_seconds, named="s"))
"""Seconds in ``"60"``, ``"6h"``, ``"1h30m"`` or ``"250 ms"``: a bare number is seconds, of every option."""
rate = _above_zero(parse_rate)
"""Bytes per second in ``"10gbit"`` or ``"500MB/s"``."""
dollars = _above_zero(parse_dollars)
"""Dollars in ``"300"``, ``"$1.5k"``."""
price = _above_zero(parse_price)
"""Dollars per hour in ``"$3.06/h"``."""
watts = _above_zero(lambda text: validate_power(f"{text}W" if text[-1:].isdigit() else text))
"""Watts in ``"300"``, ``"300 W"`` or ``"0.3kW"``: a bare number is watts."""
count = _above_zero(parse_count)
"""A number of things in ``"1281167"``, ``"50M"``."""
duration_or_zero = partial(parse_seconds, named="s")
"""The same, or ``"0"``."""


def size(text: str) -> float:
    """Bytes in ``"16GB"`` or ``"16 GiB"``; a bare number is refused, unless it is 0."""
    value = parse_bytes(text)
    bare = text.strip()
    if value and bare.replace(".", "", 1).isdecimal():
        raise UnitError(f"{bare!r} has no unit; type {bare}MB, {bare}GB or {bare}GiB")
    return check_bound(value)


size_above_zero = _above_zero(size)
"""The same, above 0."""


def number(text: str) -> float:
    """Any number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise UnitError("it must be a number, like 2.5") from None
    return _above_zero(lambda _: value)(text)


def number_between(low: float, high: float) -> Callable[[str], float]:
    """Any number from ``low`` to ``high``."""

    def read(text: str) -> float:
        value = number(text)
        if not low <= value <= high:
            raise UnitError(f"it must be a number from {low:g} to {high:g}")
        return value

    return read


def whole(least: int, most: int = MAX_WHOLE) -> Callable[[str], int]:
    """A whole number from ``least`` to ``most``: ``"64"``, ``"50k"``."""
    expected = f"it must be a whole number, {least} or more"
    if most != MAX_WHOLE:
        expected = f"it must be a whole number from {least} to {most:,}"

    def read(text: str) -> int:
        try:
            value = parse_count(text)
        except UnitError:
            raise UnitError(expected) from None
        if not least <= value <= most or value != int(value):
            raise UnitError(expected)
        return int(value)

    return read


def whole_numbers(most: int = MAX_WHOLE) -> Callable[[str], tuple[int, ...]]:
    """Numbers from 1 to ``most`` of ``"1,2,4"``, each once, smallest first."""

    def read(text: str) -> tuple[int, ...]:
        try:
            return tuple(sorted({whole(1, most)(word) for word in text.split(",")}))
        except UnitError:
            raise UnitError(f"write numbers from 1 to {most:,}, like 1,2,4") from None

    return read


def fraction(
    low: float = 0.0, high: float = 1.0, *, expected: str = "", include: str = "[]"
) -> Callable[[str], float]:
    """A fraction as ``"0.9"`` or ``"90%"``, from ``low`` to ``high``; ``include`` says which ends are allowed.

    ``expected`` is the sentence for a value outside.
    """

    def read(text: str) -> float:
        typed = text.strip()
        try:
            value = float(typed.removesuffix("%").strip()) / (100 if typed.endswith("%") else 1)
        except ValueError:
            raise UnitError(
                f"it must be a fraction, like 0.9 or 90%{'; ' + expected if expected else ''}"
            ) from None
        above = value >= low if include[0] == "[" else value > low
        below = value <= high if include[1] == "]" else value < high
        if not (above and below):
            raise UnitError(
                expected or f"it must be a fraction from {low:g} to {high:g}, like 0.9 or 90%"
            )
        return value

    return read


probability = fraction(
    0.5,
    1.0,
    include="[)",
    expected="it must be a probability from 0.5 to below 1, like 0.9 or 90%",
)


def percent(text: str) -> float:
    """The fraction that a number of per cent is: ``"2"`` and ``"2%"`` are 0.02.

    No step is known to a two-thousandth of itself, so what is less is Python's way of writing it (0.02 for 2 %).
    """
    try:
        value = float(text.strip().removesuffix("%").strip())
    except ValueError:
        raise UnitError("it must be a percentage, like 2 or 2%") from None
    if 0 < value < MIN_PERCENT:
        raise UnitError(
            f"that would be {value:g} % of the step; it is given in per cent, so for a fraction of {value:g} type "
            f"{value * 100:g}%"
        )
    if value > 100:
        raise UnitError("it must be at most 100%, the whole step; like 2 or 2%")
    return _above_zero(lambda _: value)(text) / 100


def durations(text: str) -> tuple[float, float]:
    """A time, or the two between which it lies, like ``"3m..8m"``."""
    first, dots, last = text.partition("..")
    low = duration_or_zero(first)
    high = duration_or_zero(last if dots else first)
    if low > high:
        raise UnitError("the shorter time comes first, like 3m..8m")
    return low, high


def names(text: str) -> tuple[str, ...]:
    """Words separated by commas, each once."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise UnitError("it names nothing; leave it out, or give it a name")
    return found


def one_of(
    known: Sequence[str] | Mapping[str, T], hint: str = "", shown: Sequence[str] = ()
) -> Callable[[str], T]:
    """One of these words, in letters of any case; of a mapping, what the word stands for.

    Errors offer the words ``shown``, else all, and end with ``hint``.
    """
    values: Mapping[str, Any] = (
        known if isinstance(known, Mapping) else {word: word for word in known}
    )
    words = shown or list(values)
    expected = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]

    def read(text: str) -> T:
        typed = text.strip().lower()
        if typed not in values:
            raise UnitError(f"it must be {expected}{hint}")
        return values[typed]  # type: ignore[no-any-return]

    return read


def number_range(text: str) -> tuple[float | None, float | None]:
    """The least and the most of ``"8"``, ``"4-8"``, ``"4-"`` or ``"-8"``; ``None`` where there is no end."""
    least, dash, most = text.partition("-")
    try:
        low = number(least) if least.strip() else None
        high = number(most) if most.strip() else None
    except UnitError:
        low = high = None
    if low is None and high is None:
        raise UnitError('write it like "8", "4-8", "4-" or "-8"')
    if low is not None and high is not None and low > high:
        raise UnitError(f"that asks for at least {low:g} and at most {high:g}; write it like 4-8")
    return low, (high if dash else low)


def amounts(text: str) -> tuple[str, int]:
    """A name and how many: ``"p3.16xlarge=2"``."""
    name, sign, number_of = text.partition("=")
    if not (name.strip() and sign and number_of.strip().isdigit() and len(number_of) < 6):
        raise UnitError("it must be an instance type and how many, like p3.16xlarge=2")
    return name.strip(), int(number_of)


def node_names(text: str) -> Iterator[str]:
    """The names in a list of nodes as Slurm writes it: ``a1``, ``a2``, ``a05`` and ``b`` of ``a[1-2,05],b``."""
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        head, _, rest = part.partition("[")
        if not rest:
            yield part
            continue
        ranges, _, tail = rest.partition("]")
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                for number in range(int(first), int(last or first) + 1):
                    yield f"{head}{number:0{len(first)}d}{tail}"
