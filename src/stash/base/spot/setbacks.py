"""What one rehearsal of a synchronous job lived through: who was taken away, and what each of them cost.

Seconds count from the first moment that all nodes trained together; ``None`` means "not known". Holds what happened.
"""

from __future__ import annotations

from stash.base.records.base import Count, Number, Record, Sentence
from stash.base.spot.log import SpotEvent


class NoticeCheckpoint(Record):
    """What became of the checkpoint that a notice asks for."""

    seconds: Number | None
    """From the notice until it was whole; ``None`` if there was none in time."""
    why: Sentence = ""
    """Why there was none."""


class SyncSetback(Record):
    """A node that was taken away, and what it took the group to go on."""

    gone: str
    at: Number
    """When it stopped training: once the checkpoint that its notice asked for was settled, if it had one."""
    notice: Number | None
    """Seconds that it was told before; ``None``: it vanished."""
    lost_seconds: Number
    """Of training that is done again: since the last checkpoint, or since the group was last started."""
    again_seconds: Number | None = None
    """Until a group without it was started; ``None`` if none was before the end."""
    whole_seconds: Number | None = None
    """Until a group of as many nodes as planned was started; ``None`` if none was before the end."""
    successor: str | None = None
    checkpoint: NoticeCheckpoint | None = None
    """``None`` without a notice, and where nobody kept it."""


class SyncLog(Record):
    """One rehearsal."""

    stash_version: str
    plan: str
    script: tuple[str, ...]
    on: str
    nodes: Count
    least: Count
    checkpoint_seconds: Number
    checkpoint_why: Sentence
    """Where that interval is from."""
    reason: Sentence
    """Why it ended."""
    seconds: Number | None
    """From when all nodes first trained together until the end; ``None`` if they never did."""
    restarts: Count
    """Of the whole group, where torchrun had not put it together in time."""
    setbacks: tuple[SyncSetback, ...] = ()
    events: tuple[SpotEvent, ...] = ()
