"""What all records share: they are immutable, they have a version, and they say when they were made."""

from __future__ import annotations

from datetime import datetime, timezone

from pydantic import BaseModel, ConfigDict

SCHEMA = 2
SUFFIX = ".stash.json"


class Record(BaseModel):
    """Base of all records: immutable; fields of a later minor version are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def now() -> str:
    """This moment as records keep it: UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
