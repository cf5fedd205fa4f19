"""What one asynchronous training lived through: every update, every coming and going, what was predicted of it.

The file is ``*.spotlog.json`` (``docs/format.md``). Seconds count from the moment the training's coordinator began;
``None`` means "not known". Holds what happened, not what it means.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from stash.base.records.base import Count, Number, PlainName, Record, Sentence
from stash.base.spot.fleets import SpeedModel

SPOT_LOG_SCHEMA = 1
SPOT_LOG_SUFFIX = ".spotlog.json"
SpotGround = Literal["testbed", "local"]
_MOST_LOSS = 1e18
_SHORTEST = 1e-6
"""Seconds of a stretch: clocks of two machines agree no better."""


def _reckoned(loss: Any) -> Any:
    return None if isinstance(loss, float) and not abs(loss) <= _MOST_LOSS else loss


RunLoss = Annotated[Number | None, BeforeValidator(_reckoned)]
"""``None`` where it was no number, or is too large for one to reckon with: training may diverge."""


class SpotEvent(Record):
    """One thing that happened."""

    at: Annotated[Number, Field(ge=0)] | None
    what: PlainName
    """``joined``, ``notice``, ``wanted``, ``left``, ``lost``, ``server lost``, ``checkpoint`` …"""
    who: PlainName = ""
    type: PlainName | None = None
    instead_of: PlainName | None = None
    seconds: Number | None = None
    """Of notice, or that a checkpoint took."""
    leases: Count | None = None
    """That a lost worker left to others."""
    samples: Count | None = None
    """To be trained on again by a server that was set back."""
    told: tuple[Sentence, ...] = ()


class SpotUpdates(Record):
    """All updates, one entry each in every column."""

    seconds: tuple[Annotated[Number, Field(ge=0)], ...] = ()
    worker: tuple[PlainName, ...] = ()
    samples: tuple[Count, ...] = ()
    staleness: tuple[Count, ...] = ()
    """Updates that others made in between."""
    loss: tuple[RunLoss, ...] = ()
    """Before the update."""

    @model_validator(mode="after")
    def _as_long_as_each_other(self) -> SpotUpdates:
        lengths = {len(getattr(self, name)) for name in type(self).model_fields}
        if len(lengths) > 1:
            raise ValueError("updates: the columns are not equally long")
        return self


class SpotStretch(Record):
    """A time in which nobody came or went."""

    start: Annotated[Number, Field(ge=0)]
    stop: Number
    workers: dict[PlainName, Count]
    """By type."""
    updates: Count
    predicted: Annotated[Number, Field(ge=1e-9)] | None
    """Updates per second; ``None`` where nothing was predicted."""

    @model_validator(mode="after")
    def _takes_time(self) -> SpotStretch:
        if self.stop - self.start < _SHORTEST:
            raise ValueError(f"it ends {self.stop - self.start:g} s after it starts")
        return self

    @property
    def observed(self) -> float:
        """Updates per second."""
        return self.updates / (self.stop - self.start)


class SpotTakeover(Record):
    """One that went, and who came for it."""

    gone: PlainName
    successor: PlainName | None
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


class SavedModel(Record):
    """What the model that was saved is worth: loaded again, on the samples of the last updates."""

    said: Sentence
    loss: RunLoss = None
    """``None`` if nobody could load it."""
    reported: RunLoss = None
    """Of the same updates, when they were made."""
    updates: Count = 0
    samples: Count = 0
    wrong: Sentence | None = None
    """What contradicts the loss that was reported."""


class SpotLog(Record):
    """One run."""

    log_schema: int = SPOT_LOG_SCHEMA
    stash_version: PlainName
    created: PlainName
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
    loss: RunLoss
    """Running mean at the end."""
    loss_window: Count
    """Updates that it is taken over."""
    stretches: tuple[SpotStretch, ...] = ()
    takeovers: tuple[SpotTakeover, ...] = ()
    events: tuple[SpotEvent, ...] = ()
    updates: SpotUpdates = SpotUpdates()
    books: LeaseBooks | None = None
    """``None`` if it ended too suddenly for that."""
    goal_loss: RunLoss = None
    """What ``--loss`` asked for, else what the plan was made for; ``None`` where nobody kept it."""
    goal_seconds: Annotated[Number, Field(ge=0)] | None = None
    """From the first update until the plan expects the loss it was made for; ``None`` where it says nothing of it."""
    saved: SavedModel | None = None
    """``None`` where no model was saved, or by an older Stash."""
