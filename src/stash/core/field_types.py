"""Types of records' fields: plain ones to whoever makes a record, bounded ones to whoever reads it from a file.

Standard library only, since agents make some of the records in the job's interpreter; where records are read, pydantic
asks these types for their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

from stash.core.printable import printable_line, shorten_text

# Bounds of numbers are far beyond what can be measured, so that whoever computes with them needs no care of his own:
# no product or ratio of two or three overflows.

_LARGEST = 1e18
_SMALLEST_SECONDS = 1e-12
"""A thousandth of what clocks tell."""
MAX_TEXT = 2**20
_MAX_SENTENCE = 4_000
_MAX_NAME = 300


def _check_seconds(seconds: float) -> float:
    if 0 < seconds < _SMALLEST_SECONDS:
        raise ValueError(f"Input should be 0 or at least {_SMALLEST_SECONDS:g} seconds")
    return seconds


def _sentence_type(text: Any) -> Any:
    from stash.core.secrets import mask_text

    return mask_text(shorten_text(text, _MAX_SENTENCE)) if isinstance(text, str) else text


def _name_type(text: Any) -> Any:
    if not isinstance(text, str) or len(text) > MAX_TEXT:  # which is refused
        return text
    return _line(text) if len(text) <= _MAX_NAME else printable_line(text, _MAX_NAME)


@lru_cache(maxsize=1024)
def _line(name: str) -> str:
    """Of a name, and many records have the same."""
    return printable_line(name, _MAX_NAME)


def _mask_words(words: tuple[str, ...]) -> tuple[str, ...]:
    from stash.core.secrets import mask_words

    return mask_words(words)


class FieldBounds:
    """Limits of a number, by the names that pydantic's schemas have for them."""

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, kind: Any, make_schema: Callable[[Any], Any]) -> Any:
        return make_schema(kind) | self._limits


class FieldCheck:
    """What is done to a value ``before`` or ``after`` it is held to its type; it raises ValueError."""

    def __init__(self, when: str, check: Callable[[Any], Any]) -> None:
        self._when, self._check = when, check

    def __get_pydantic_core_schema__(self, kind: Any, make_schema: Callable[[Any], Any]) -> Any:
        function = {"type": "no-info", "function": self._check}
        return {"type": f"function-{self._when}", "function": function, "schema": make_schema(kind)}


Number = Annotated[float, FieldBounds(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""Anything measured or stated."""
Duration = Annotated[
    float, FieldBounds(ge=0, le=1e12, allow_inf_nan=False), FieldCheck("after", _check_seconds)
]
"""A duration that something is divided by."""
Whole = Annotated[int, FieldBounds(ge=-(2**63), lt=2**63)]
"""An integer; of a difference of counters it may be negative."""
Count = Annotated[int, FieldBounds(ge=0, lt=2**63)]
"""How many there are of something, or which of them it is."""
Sentence = Annotated[str, FieldCheck("before", _sentence_type)]
"""What may quote a job's own words: without secrets, and with only the ends of what is very long."""
PlainName = Annotated[str, FieldCheck("before", _name_type)]
"""What something is called: one line, of bounded length, in which nothing acts on a terminal."""
CommandWords = Annotated[tuple[str, ...], FieldCheck("after", _mask_words)]
"""Words as they were typed, without the secrets among them."""
