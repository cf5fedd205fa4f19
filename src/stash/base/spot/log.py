"""What one asynchronous training lived through: every update, every coming and going, what was predicted of it.

The file is ``*.spotlog.json`` (``docs/format.md``). Seconds count from the moment the training's coordinator began;
``None`` means "not known". Holds what happened, not what it means.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from stash.base.records.base import Count, Number, Record, Sentence
from stash.base.spot.fleets import SpeedModel

SPOT_LOG_SCHEMA = 1
SPOT_LOG_SUFFIX = ".spotlog.json"
SpotGround = Literal["testbed", "local"]


class SpotEvent(Record):
    """One thing that happened."""

    at: Number | None
    what: str
    """``joined``, ``notice``, ``wanted``, ``left``, ``lost``, ``server lost``, ``checkpoint`` …"""
    who: str = ""
    type: str | None = None
    instead_of: str | None = None
    seconds: Number | None = None
    """Of notice, or that a checkpoint took."""
    leases: Count | None = None
    """That a lost worker left to others."""
    samples: Count | None = None
    """To be trained on again by a server that was set back."""
    told: tuple[Sentence, ...] = ()


class SpotUpdates(Record):
    """All updates, one entry each in every column."""

    seconds: tuple[Number, ...] = ()
    worker: tuple[str, ...] = ()
    samples: tuple[Count, ...] = ()
    staleness: tuple[Count, ...] = ()
    """Updates that others made in between."""
    loss: tuple[float | None, ...] = ()
    """Before the update; ``None`` where it was no number."""

    @model_validator(mode="after")
    def _as_long_as_each_other(self) -> SpotUpdates:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) > 1:
            raise ValueError("updates: the columns are not equally long")
        return self


class SpotStretch(Record):
    """A time in which nobody came or went."""

    start: Number
    stop: Number
    workers: dict[str, int]
    """By type."""
    updates: Count
    predicted: Number | None
    """Updates per second; ``None`` where nothing was predicted."""

    @property
    def observed(self) -> float:
        """Updates per second."""
        return self.updates / (self.stop - self.start)


class SpotTakeover(Record):
    """One that went, and who came for it."""

    gone: str
    successor: str | None
    notice: Number | None
    """Seconds that it was told before; ``None``: it vanished."""
    decided_seconds: Number | None
    """From the notice, or from when it was found missing, to the decision."""
    noticed_seconds: Number | None
    """From the last sign of life of what vanished until it was found missing."""
    joined_seconds: Number | None
    """From the decision until the successor had joined; ``None`` if it had not before the end."""


class LeaseBooks(Record):
    """How the ledger stood at the end, in samples."""

    issued: Count
    done: Count
    out: Count
    """Leases."""
    waiting: Count
    """Leases."""
    reissued: Count
    repeated: Count
    wrong: Sentence | None
    """What the audit found; ``None``: no lease lost, none doubled."""


class SpotLog(Record):
    """One run."""

    log_schema: int = SPOT_LOG_SCHEMA
    stash_version: str
    created: str
    plan: str
    job: str
    on: SpotGround
    model: SpeedModel
    """That predicted."""
    slower: Number = Field(gt=0)
    """How many times slower than planned everything was emulated; 1 on real machines."""
    bound: Count | None
    servers: Count
    reason: Sentence
    """Why it ended."""
    seconds: Number | None
    """From the first update to the last; ``None`` if there were no two."""
    loss: Number | None
    """Running mean at the end."""
    loss_window: Count
    """Updates that it is taken over."""
    stretches: tuple[SpotStretch, ...] = ()
    takeovers: tuple[SpotTakeover, ...] = ()
    events: tuple[SpotEvent, ...] = ()
    updates: SpotUpdates = SpotUpdates()
    books: LeaseBooks | None = None
    """``None`` if it ended too suddenly for that."""
