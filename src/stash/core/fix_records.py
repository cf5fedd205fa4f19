"""What was tried on a script, launch by launch, what is kept and why; and its file, ``*.fix.json``.

Holds measurements and decisions, not how either was made. Times are seconds of one optimizer step of the whole job;
``None`` means "not known". Intervals hold together with the error rate that the record states.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stash.core import documents
from stash.core.documents import DocumentFile
from stash.core.intervals import Interval
from stash.core.records.base import CommandWords, Count, Number, PlainName, Record, Sentence
from stash.core.secrets import MASK, is_secret, mask_text

SCHEMA = 1

Effect = Literal["none", "rounding", "order", "numerics", "batch"]
"""What a change does to training. *none*: losses are the same, bit for bit. *rounding*: sums are taken in another
order. *order*: the same samples come in another order. *numerics*: another precision. *batch*: more samples in a
step."""
ChangeStanding = Literal[
    "kept", "no difference", "slower", "unproven", "failed", "other training", "asks", "left out"
]
"""*unproven*: faster, but not shown with the error rate. *other training*: it did not do what it claims to training.
*asks*: measured, and left to the person, as it needs ``--allow``. *left out*: not tried."""
SearchStage = Literal["turns", "filling", "screening", "combining", "final"]
"""*filling*: a launch that prepares what a change needs, and is no measurement."""


def _mask_variables(variables: dict[str, str]) -> dict[str, str]:
    return {
        name: MASK if is_secret(name) else mask_text(value) for name, value in variables.items()
    }


class CallPlace(Record):
    """A call in the script."""

    file: PlainName
    line: Count


class Proof(Record):
    """What a change did to training, against the script as typed with the same seeds."""

    holds: bool
    """Whether that is what it claims."""
    losses: Count
    """How many were compared, of every rank."""
    batches: Count
    """Likewise."""
    largest_difference: Number | None = None
    """Of losses, relative; ``None`` if none were compared."""
    text: Sentence


class Tried(Record):
    """A change, and what became of it."""

    name: PlainName
    knob: PlainName
    """What it acts on; only one change of a knob can be kept."""
    text: Sentence
    effect: Effect
    stalls: tuple[PlainName, ...] = ()
    forecast: Number | None = None
    """Seconds of a step that it saves at most by forecast; ``None``: not known."""
    standing: ChangeStanding
    why: Sentence = ""
    saves: Interval | None = None
    """Seconds of a step: of what is kept as part of all that is kept, else alone."""
    proof: Proof | None = None
    written: Literal["patch", "command", "setting", "explained", ""] = ""
    """How it gets into the job; empty if it is not kept."""
    how: Sentence = ""
    place: CallPlace | None = None
    variables: Annotated[dict[str, str], AfterValidator(_mask_variables)] = Field(
        default_factory=dict
    )
    cores: dict[str, list[int] | list[list[int]]] | None = None
    compile_seconds: Number | None = None
    """What starting takes longer with it."""


class Launched(Record):
    """One launch of the script; of *turns* also one block of a launch, which took no time of its own."""

    stage: SearchStage
    round: Count
    changes: tuple[PlainName, ...]
    """Names of what was changed; none: as typed."""
    step_seconds: Number | None
    steps: Count = 0
    doubt_seconds: Number = 0.0
    elapsed_seconds: Number = 0.0
    allocated_bytes: Count | None = None
    resident_bytes: Count | None = None
    failure: Sentence = ""


class Fix(Record):
    """All of one ``stash fix``."""

    fix_schema: int = SCHEMA
    stash_version: str
    created: str
    workload: PlainName
    command: CommandWords
    ranks: Count
    engine: PlainName = "local"
    """What started them: ``torchrun``, or ``local`` for the script's own process."""
    error_rate: float
    """Of the whole search: that anything kept is no faster, or an interval misses."""
    step_seconds: Number
    """As typed: in the final comparison, or where nothing was kept in all rounds."""
    together: Interval | None = None
    """Seconds that all that is kept saves."""
    after_seconds: Number | None = None
    final_rounds: Count = 0
    final_in_turns: bool = False
    """Of one launch, in which arms took turns: what differs from launch to launch is in no interval."""
    tried: tuple[Tried, ...]
    launches: tuple[Launched, ...]
    advice: tuple[Sentence, ...] = ()
    """What needs work outside the script."""
    by_hand: Sentence = ""
    """What takes more of a step than all that is kept saves, and no setting changes."""
    profile_seconds: Number = 0.0
    elapsed_seconds: Number
    proof: Proof | None = None
    """Of all that is kept together, from two longer launches; ``None`` where there was no time for them."""
    repeats: bool | None = None
    """Whether two launches as typed gave the same losses, bit for bit; ``None``: it was launched once."""
    interrupted: bool = False
    notes: tuple[Sentence, ...] = ()
    left: tuple[Sentence, ...] = ()
    """What of the space there was nothing to try of, and why."""
    patch: Annotated[str, AfterValidator(mask_text)] = ""
    """A unified diff, without secrets; empty if nothing is written into source."""
    sources: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each file that the patch changes, as it was measured."""

    @property
    def kept(self) -> tuple[Tried, ...]:
        """The changes that are kept."""
        return tuple(each for each in self.tried if each.standing == "kept")


FILE: DocumentFile[Fix] = DocumentFile(
    documents.FIX, Fix, schema=SCHEMA, lists=("tried", "launches")
)
