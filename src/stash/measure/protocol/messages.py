"""Messages of the agents to the launcher: each type's fields, and its line in the journal. Standard library only.

What was measured is told as the artefact's own records (``core/measured.py``); fields of others that end up there
have the names they have there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from stash.core.errors import StashError
from stash.core.measured import (
    Block,
    Collective,
    Launch,
    Memory,
    Rank,
    Rate,
    Skipped,
    StagePasses,
    WorkerTimes,
)
from stash.measure.protocol.wire import build_record, register_record


@dataclass(frozen=True)
class AgentMessage:
    """Base of all messages that are no records of the artefact; ``kind`` is how a line of the journal names its type."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind


@dataclass(frozen=True)
class PhaseBegun(AgentMessage, kind="phase"):
    """The ranks' occupation from now on: ``warm-up``, ``first-steps``, ``blocks``, or a rung's block of a round."""

    name: str
    round: int | None = None
    step_seconds: float | None = None
    """What the last step of warming up took, of ``first-steps``; with ``steps``, the mean of so many of those."""
    steps: int | None = None
    waited_seconds: float | None = None
    """… and what the leader waited for its loaders in each."""


@dataclass(frozen=True, init=False)
class JobFacts(AgentMessage, kind="workload"):
    """Fields of ``Workload``, which the launcher holds them to; what was not learned (None, or empty) is left out."""

    facts: Mapping[str, Any]

    def __init__(self, **facts: Any) -> None:
        known = {name: value for name, value in facts.items() if value not in (None, [], {})}
        object.__setattr__(self, "facts", known)


@dataclass(frozen=True)
class HostsSeen(AgentMessage, kind="hosts"):
    """Each node's ``Host``, as its launcher described it."""

    hosts: list[dict[str, Any]]


@dataclass(frozen=True)
class SoftwareSeen(AgentMessage, kind="software"):
    """Versions by name."""

    versions: dict[str, str]


@dataclass(frozen=True)
class LadderChosen(AgentMessage, kind="ladder"):
    """The rungs to run, and those skipped with their reasons."""

    rungs: tuple[str, ...]
    skipped: dict[str, str]


@dataclass(frozen=True)
class RoundsPlanned(AgentMessage, kind="plan"):
    """How long a round of blocks is expected to take, before the first one."""

    round_seconds: float


@dataclass(frozen=True)
class RoundGivenUp(AgentMessage, kind="given-up"):
    """The first round took far longer than the steps before it let expect."""

    seconds: float
    expected_seconds: float


@dataclass(frozen=True)
class LedgerKept(AgentMessage, kind="ledger"):
    """Fields of ``Ledger``."""

    rank: int
    seconds: float
    steps: int
    timed_steps: int
    timed_seconds: float
    epoch_steps: int | None
    rows: list[dict[str, Any]]
    places: list[dict[str, Any]]
    unplaced: str


@dataclass(frozen=True)
class Noted(AgentMessage, kind="note"):
    """A sentence for the reader of the profile."""

    text: str


@dataclass(frozen=True)
class RoundDone(AgentMessage, kind="round"):
    """Every rung of the ladder has its blocks of this round."""

    number: int
    seconds: float
    """What the blocks took, without second opinions and blocks that were run again."""


@dataclass(frozen=True)
class LadderEnded(AgentMessage, kind="end"):
    """The last one: ``stopped``, ``rounds done``, ``script ended``, ``no rungs``, ``no process group`` (of a
    job that was started as ranks), or ``unsafe`` and why."""

    reason: str
    why: str | None = None


register_record(Rank)
Message = (
    AgentMessage
    | Block
    | Collective
    | Launch
    | Memory
    | Rank
    | Rate
    | Skipped
    | StagePasses
    | WorkerTimes
)
KINDS: Mapping[str, type[Message]] = {
    "block": Block,
    "collective": Collective,
    "launch": Launch,
    "memory": Memory,
    "passes": StagePasses,
    "rank": Rank,
    "rate": Rate,
    "skipped": Skipped,
    "workers": WorkerTimes,
    **{cls.kind: cls for cls in AgentMessage.__subclasses__()},
}
_NAMES = {cls: name for name, cls in KINDS.items()}


@register_record
@dataclass(frozen=True)
class Payload:
    """A message on its way from another rank to the journal: its line, which most who pass it on never read."""

    line: str

    def __post_init__(self) -> None:
        if "\n" in self.line:
            raise ValueError("a message is one line")

    @classmethod
    def pack(cls, message: Message) -> Payload:
        return cls(encode_message(message))

    def message(self) -> Message:
        """Raises StashError, as ``decode_message``."""
        return decode_message(self.line)


def encode_message(message: Message | Payload) -> str:
    """One line, without its end."""
    if isinstance(message, Payload):
        return message.line
    values: Mapping[str, Any]
    if isinstance(message, JobFacts):
        values = message.facts
    else:
        values = {each.name: getattr(message, each.name) for each in fields(message)}
    return json.dumps({"kind": _NAMES[type(message)], **values})


def decode_message(line: str) -> Message:
    """The message of a line; raises StashError for one that no agent of this version writes."""
    try:
        row = json.loads(line)
        kind = KINDS[row.pop("kind")]
        return JobFacts(**row) if kind is JobFacts else build_record(kind, row)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise StashError(
            f"the job's agents wrote an invalid message ({line[:80]!r}); does the job run in an environment with "
            "another version of Stash? Install this one there"
        ) from None
