"""What all records share: they are immutable, and they have a version."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
SUFFIX = ".stash.json"


class Record(BaseModel):
    """Base of all records: immutable; fields of a later minor version are ignored when read."""

    model_config = ConfigDict(frozen=True, extra="ignore")
