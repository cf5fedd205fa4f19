"""What all records share: immutable, versioned, dated, bounded; and what to say of fields that make none."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from stash.core.field_types import (
    MAX_TEXT,
    CommandWords,
    Count,
    Duration,
    Number,
    PlainName,
    Sentence,
    Whole,
)
from stash.core.printable import escape_bytes

__all__ = [
    "SCHEMA",
    "SUFFIX",
    "CommandWords",
    "Count",
    "Duration",
    "Number",
    "PlainName",
    "Record",
    "Sentence",
    "Whole",
    "first_mistake",
    "utc_now",
]

SCHEMA = 3
SUFFIX = ".stash.json"


def _escape_field(value: Any) -> Any:
    """A field's text, or texts, with bytes that are no text escaped; anything else as it is."""
    if isinstance(value, str):
        return value if value.isascii() else escape_bytes(value)
    if isinstance(value, (tuple, list)) and any(
        isinstance(part, str) and not part.isascii() for part in value
    ):
        return type(value)(map(_escape_field, value))
    return value


class Record(BaseModel):
    """Base of all records: immutable; fields of a later minor version are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_max_length=MAX_TEXT)

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
