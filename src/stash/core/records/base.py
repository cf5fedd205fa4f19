"""What all records share: immutable, versioned, dated, bounded; and what to say of fields that make none."""

from __future__ import annotations

from datetime import datetime, timezone
from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from stash.core.printable import escape_bytes, printable_line, shorten_text
from stash.core.secrets import mask_text, mask_words

# Bounds of numbers are far beyond what can be measured, so that whoever computes with them needs no care of his own:
# no product or ratio of two or three overflows.

SCHEMA = 3
SUFFIX = ".stash.json"


_LARGEST = 1e18
_SMALLEST_SECONDS = 1e-12
"""A thousandth of what clocks tell."""
_MAX_TEXT = 2**20
_MAX_SENTENCE = 4_000
_MAX_NAME = 300


def _check_seconds(seconds: float) -> float:
    if 0 < seconds < _SMALLEST_SECONDS:
        raise ValueError(f"Input should be 0 or at least {_SMALLEST_SECONDS:g} seconds")
    return seconds


def _sentence_type(text: Any) -> Any:
    return mask_text(shorten_text(text, _MAX_SENTENCE)) if isinstance(text, str) else text


def _name_type(text: Any) -> Any:
    if not isinstance(text, str) or len(text) > _MAX_TEXT:  # which is refused
        return text
    return _line(text) if len(text) <= _MAX_NAME else printable_line(text, _MAX_NAME)


@lru_cache(maxsize=1024)
def _line(name: str) -> str:
    """Of a name, and many records have the same."""
    return printable_line(name, _MAX_NAME)


def _escape_field(value: Any) -> Any:
    """A field's text, or texts, with bytes that are no text escaped; anything else as it is."""
    if isinstance(value, str):
        return value if value.isascii() else escape_bytes(value)
    if isinstance(value, (tuple, list)) and any(
        isinstance(part, str) and not part.isascii() for part in value
    ):
        return type(value)(map(_escape_field, value))
    return value


Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
"""Anything measured or stated."""
Duration = Annotated[
    float, Field(ge=0, le=1e12, allow_inf_nan=False), AfterValidator(_check_seconds)
]
"""A duration that something is divided by."""
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""An integer; of a difference of counters it may be negative."""
Count = Annotated[int, Field(ge=0, lt=2**63)]
"""How many there are of something, or which of them it is."""
Sentence = Annotated[str, BeforeValidator(_sentence_type)]
"""What may quote a job's own words: without secrets, and with only the ends of what is very long."""
PlainName = Annotated[str, BeforeValidator(_name_type)]
"""What something is called: one line, of bounded length, in which nothing acts on a terminal."""
CommandWords = Annotated[tuple[str, ...], AfterValidator(mask_words)]
"""Words as they were typed, without the secrets among them."""


class Record(BaseModel):
    """Base of all records: immutable; fields of a later minor version are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=_MAX_TEXT)

    @model_validator(mode="before")
    @classmethod
    def _escape_texts(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        texts = {}
        for name, value in fields.items():
            if isinstance(value, str):
                if not value.isascii():
                    texts[name] = escape_bytes(value)
            elif (
                isinstance(value, (tuple, list)) and (written := _escape_field(value)) is not value
            ):
                texts[name] = written
        return fields | texts if texts else fields


def utc_now() -> str:
    """This moment as records keep it: UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


# What is wrong with fields that make no record, in few words.


def first_mistake(error: ValidationError, *above: str) -> str:
    """The first wrong field, as it is called below ``above``, and why: ``workload.batch: field required``."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    why = first["msg"].removeprefix("Value error, ").lower()
    return f"{'.'.join([*above, *map(str, first['loc'])])}: {why}"
