"""What traces of a job say of its steps, and its file, ``*.trace.json``.

Holds what ``stash trace`` found in files that other tools recorded, and none of their names of users, machines and
jobs. Times are seconds of one step; ``None`` means "not known".
"""

from __future__ import annotations

from pydantic import Field

from stash.core import documents
from stash.core.documents import DocumentFile
from stash.core.intervals import Interval
from stash.core.records.base import Count, Number, PlainName, Record, Sentence
from stash.core.records.circumstances import MachinePrice

SCHEMA = 1
TRACE_PARTS = ("compute", "host", "loop", "transfer", "contention", "bubble", "exchange", "input")
"""What a step of a trace is made of, as it is listed. *host*: the device has nothing to do, as launches come late.
*loop*: pauses of a millisecond or more without an operation, or a launch. *transfer*: copies between host and device.
*contention*: waiting for a rank that is late. *bubble*: waiting for another stage of a pipeline. *exchange*:
collectives whose ranks are all there. *input*: waiting for the loader."""


class TracePart(Record):
    """One part of a step, mean over ranks."""

    name: PlainName
    time: Interval
    share: Number
    """Of the step."""
    whole_seconds: Number | None = None
    """With what was hidden behind compute; ``None`` for what cannot be hidden."""
    path_seconds: Number | None = None
    """Of it on the critical path of all ranks; ``None`` where that is not known."""
    place: Sentence = ""
    """Where in the script, if the trace has stacks."""

    @property
    def seconds(self) -> float:
        return self.time.value

    @property
    def hidden_share(self) -> float | None:
        """The share of it that was hidden."""
        return None if not self.whole_seconds else 1 - self.seconds / self.whole_seconds


class TracedRank(Record):
    """One rank's steps."""

    rank: Count
    node: Count | None = None
    step_seconds: Number
    parts: dict[PlainName, Number]
    last_share: Number | None = None
    """Of the collectives that it joined, how many it arrived last at."""
    late_seconds: Number | None = None
    """What the others waited for it in a step, mean over them."""
    late_by: PlainName = ""
    """The part of its steps that it spends longer on than the others."""


class TracedStep(Record):
    """One step, mean over ranks."""

    number: Count
    seconds: Number | None
    parts: dict[PlainName, Number] = Field(default_factory=dict)
    why_left_out: Sentence = ""
    """Empty if it counts."""


class TracedCollective(Record):
    """All collectives of one kind in one group and of one size."""

    op: PlainName
    group: PlainName = ""
    ranks: Count
    where: PlainName = ""
    """``inside a node``, ``across nodes``; empty where it is not known."""
    each_step: Number
    bytes: Count | None = None
    seconds: Number
    """Of one, once all ranks are there."""
    wait_seconds: Number
    """Of one, until they are, mean over ranks."""
    bus_bytes_per_second: Number | None = None


class Supposition(Record):
    """What a step would take if one thing were otherwise; at least, since what was hidden may appear."""

    name: PlainName
    text: Sentence
    step_seconds: Number
    saved_dollars_per_day: Number | None = None
    """What the machines cost while a day's steps take longer than this; ``None`` without a price."""


class CrossCheck(Record):
    """One stall as traces and the ladder of a profile have it, in seconds of a step."""

    name: PlainName
    traced: Interval
    ladder: Interval
    difference: Interval
    """By how much the ladder says more."""
    text: Sentence
    """What explains it."""


class Trace(Record):
    """All that ``stash trace`` says of a job."""

    trace_schema: int = SCHEMA
    stash_version: str
    created: str
    workload: PlainName
    """The folder or file that was read."""
    tool: PlainName
    world_size: Count
    """Ranks of the job."""
    nodes: Count | None = None
    backend: PlainName = ""
    device: PlainName
    step: Interval
    traced: tuple[TracePart, ...]
    ranks: tuple[TracedRank, ...]
    steps: tuple[TracedStep, ...]
    collectives: tuple[TracedCollective, ...] = ()
    suppositions: tuple[Supposition, ...] = ()
    unknown: dict[PlainName, Sentence] = Field(default_factory=dict)
    """Parts that these traces cannot tell, and why."""
    like_exchange: dict[PlainName, Number] = Field(default_factory=dict)
    """Kernels counted as compute whose names sound like communication: their share of the step."""
    price: MachinePrice | None = None
    against: PlainName = ""
    """The profile that the traces were held against."""
    checks: tuple[CrossCheck, ...] = ()
    warnings: tuple[Sentence, ...] = ()

    @property
    def step_seconds(self) -> float:
        return self.step.value

    @property
    def largest_stall(self) -> TracePart | None:
        """What a step spends most on beside compute."""
        stalls = [part for part in self.traced if part.name != "compute"]
        return max(stalls, key=lambda part: part.seconds, default=None)

    def part(self, name: str) -> TracePart | None:
        """The part called ``name``, if it is known."""
        return next((part for part in self.traced if part.name == name), None)


FILE: DocumentFile[Trace] = DocumentFile(
    documents.TRACE, Trace, schema=SCHEMA, lists=("traced", "ranks", "steps", "collectives")
)
