"""Options as they were typed, read one by one: an error names the option, what was typed, what to type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stash.base.errors import UnitError, UserError


def number(typed: Mapping[str, str], name: str, read: Callable[[str], float], positive: bool = True) -> float:
    """The number that option ``name`` gives; raises UserError if it is none, or not above zero."""
    text = typed[name]
    try:
        value = read(text)
    except UnitError as error:
        raise UserError(f"--{name} {text}: {error}") from None
    if positive and value <= 0:
        raise UserError(f"--{name} {text}: it must be more than 0")
    return value


def fraction(typed: Mapping[str, str], name: str) -> float:
    """The fraction that option ``name`` gives, as ``0.9`` or ``90%``; raises UserError if it is none."""
    text = typed[name].strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError(f"--{name} {text}: it is a fraction, like 0.9 or 90%") from None


def words(typed: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The words of an option that takes several, separated by commas; raises UserError if it has none."""
    if name not in typed:
        return ()
    found = tuple(dict.fromkeys(word.strip() for word in typed[name].split(",") if word.strip()))
    if not found:
        raise UserError(f"--{name} {typed[name]!r} names nothing; leave it out, or give it a name")
    return found
