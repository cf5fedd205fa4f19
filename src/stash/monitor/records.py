"""The record of a watched run: a header, then windows, alerts and events, a line of JSON each; and reading it back.

It grows by about a megabyte an hour, and a job that is started again adds to it. Seconds and UTC; ``null`` is unknown.
Fields may be added without a new version; the history is in
``docs/format.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from stash.core.documents import WATCH_SUFFIX
from stash.core.errors import ArtefactError, UserError
from stash.core.files import parse_json, read_up_to
from stash.core.jsonl import TO_ADD, add_lines, whole_lines
from stash.core.records.base import (
    CommandWords,
    Count,
    Number,
    PlainName,
    Record,
    Sentence,
    first_mistake,
)
from stash.core.records.circumstances import EnergyPart, GpuState, MachinePrice
from stash.measure.launcher.folder_lock import output_lock

SUFFIX = WATCH_SUFFIX
SCHEMA = 1
_TO_ADD = TO_ADD | os.O_NOFOLLOW
_MAX_BYTES = 2**30
_KEPT = ("id", "began", "booted", "part")
"""Of the header of a job that is started again: as it was."""


class Header(Record):
    """What is watched; the first line of a record."""

    kind: Literal["watch"] = "watch"
    watch_schema: Count = SCHEMA
    id: PlainName
    stash_version: PlainName
    began: Number
    """Unix time."""
    booted: Number | None = None
    """Unix time at which the machine was started, if its price is known: from then on it is paid for."""
    job: PlainName
    command: CommandWords = ()
    """Without what may be a secret."""
    nodes: Count = 1
    ranks: Count | None = None
    """As soon as they are known, in a further header line."""
    device: PlainName | None = None
    """Of the parameters: ``cpu``, ``cuda``."""
    loaders: tuple[PlainName, ...] = ()
    baseline: PlainName | None = None
    """The profile that it is held against."""
    baseline_stalls: dict[PlainName, Number] = Field(default_factory=dict)
    """Seconds of each of the profile's stalls, and ``step``, in the ladder's names."""
    price: MachinePrice | None = None
    dollars_per_kwh: Number | None = None
    """As the project's ``power-price`` says."""
    planned_steps: Count | None = None
    """How many the run takes in all, if that was said."""
    unseen: Sentence = ""
    """Which collectives no stamp saw, in words; empty if none are known of."""
    part: Count = 1
    """Of a record from before Stash kept all of it in one file: which one this is."""


class LateRank(Record):
    """A rank that took longer in a stage than the median of the others."""

    rank: Count
    stage: PlainName
    seconds: Number
    """Of a step."""
    node: Count | None = None


class MachineState(Record):
    """What the machine of a node did meanwhile; shares of time are between 0 and 1."""

    node: Count
    others_cores: Number | None = None
    """Cores that processes outside the job used."""
    steal: Number | None = None
    """Of its cores' time, what its own host took."""
    disk_bytes: Number | None = None
    throttled: Number | None = None
    """Of the time, the periods in which the quota of its control group was used up."""
    heat: Number | None = None
    """Of the time, what its hottest core or package was slowed for."""
    gpus: tuple[GpuState, ...] = ()
    watts: dict[EnergyPart, Number] = Field(default_factory=dict)
    """Mean power of all its processor packages, whoever used them, and of the job's GPUs; a part that cannot be read
    is left out."""


class Window(Record):
    """Some seconds of training: what a step was made of."""

    kind: Literal["window"] = "window"
    began: Number
    """Unix time."""
    seconds: Number
    first_step: Count
    last_step: Count
    steps: Count
    """That were accounted for; more may have been taken (``last_step`` - ``first_step`` + 1)."""
    step_seconds: Number
    stalls: dict[PlainName, Number | None]
    """Exposed seconds of a step; they add up to it. ``null``: cannot be told."""
    set_by: dict[PlainName, Count] = Field(default_factory=dict)
    """The rank that a stall waits for."""
    ranks: dict[Count, dict[PlainName, Number]] = Field(default_factory=dict)
    """Each rank's own seconds of a step by stage; of more than 64 ranks the 8 slowest."""
    stragglers: tuple[LateRank, ...] = ()
    delay: Number | None = None
    """Of a step, the most that a rank's training thread was ready to run and had no core."""
    machines: tuple[MachineState, ...] = ()
    """Of more than 8, those of stragglers first, then those that others use most."""
    ambiguous: bool = False
    saved_step: Count | None = None
    """The last of its steps before which a checkpoint was saved."""


class Alert(Record):
    """A change that began, or, under the same ``number``, ended."""

    kind: Literal["alert"] = "alert"
    number: Count
    when: Number
    """Unix time of this line."""
    began: Number | None = None
    """… and of the one that told it first."""
    what: Literal["slower", "nothing moves", "money", "slow part"]
    step: Count
    """Since which it holds."""
    stall: PlainName | None = None
    rank: Count | None = None
    stage: PlainName | None = None
    ratio: Number | None = None
    """Of the step to what it was."""
    seconds: Number | None = None
    """By which a step is longer, and how sure that is (95 %)."""
    plus_minus: Number | None = None
    ended: bool = False
    text: Sentence = ""

    @property
    def first_told(self) -> float:
        return self.when if self.began is None else self.began


class RunEvent(Record):
    """Something that happened to the job or to watching it: a rank began, was lost, gave up; the end."""

    kind: Literal["event"] = "event"
    when: Number
    what: PlainName
    text: Sentence = ""
    code: int | None = None
    """Of an end: the job's exit code."""


RecordLine = Header | Window | Alert | RunEvent
_KINDS: dict[str, type[RecordLine]] = {
    "watch": Header,
    "window": Window,
    "alert": Alert,
    "event": RunEvent,
}
_SUMS = '{"kind":"totals"'
"""How a line begins that was written once: sums of what another file has, which nothing reads."""


@dataclass
class RunRecord:
    """A record as it was read."""

    header: Header
    windows: list[Window] = field(default_factory=list)
    alerts: list[Alert] = field(default_factory=list)
    """As they stand: of those that ended the line that says so."""
    events: list[RunEvent] = field(default_factory=list)

    def add_line(self, line: RecordLine) -> None:
        """Add a line."""
        if isinstance(line, Header):
            self.header = line
        elif isinstance(line, Window):
            self.windows.append(line)
        elif isinstance(line, RunEvent):
            self.events.append(line)
        else:
            self.alerts = [each for each in self.alerts if each.number != line.number] + [line]
            self.alerts.sort(key=lambda each: each.number)


def parse_line(text: str, where: str) -> RecordLine:
    """One line; raises ArtefactError."""
    try:
        row = parse_json(text)
        return _KINDS[row["kind"]].model_validate(row)
    except ValidationError as error:
        raise ArtefactError(
            f"{where} is not a line of a watched run: {first_mistake(error)}"
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ArtefactError(
            f"{where} is not a line of a watched run (*{SUFFIX} of `stash watch`)"
        ) from None


def read_lines(texts: Iterable[str], where: str, record: RunRecord | None = None) -> RunRecord:
    """Add lines to a record, the first of which is its header; raises ArtefactError."""
    for number, text in enumerate(texts, 1):
        if text.startswith(_SUMS):
            continue
        line = parse_line(text, f"{where}, line {number}")
        if isinstance(line, Header) and line.watch_schema > SCHEMA:
            raise ArtefactError(
                f"{where} was made by a newer Stash (schema {line.watch_schema}; this one reads up to {SCHEMA}); "
                "upgrade Stash to read it",
                code="artefact_newer",
            )
        if isinstance(line, Header) and (record is None or record.header.id != line.id):
            record = RunRecord(line)
        if record is None:
            break
        record.add_line(line)
    if record is None:
        raise ArtefactError(
            f"{where} is not the record of a watched run: it does not begin with its header"
        )
    return record


def load_record(path: Path) -> RunRecord:
    """The record at ``path``, with the files that were moved aside once; raises ArtefactError.

    A last line cut short is left out.
    """
    record = _load_part(path)
    stem = path.name.removesuffix(SUFFIX)
    for number in reversed(range(1, record.header.part)):
        part = path.with_name(f"{stem}.{number}{SUFFIX}")
        if not part.exists():
            continue
        before = _load_part(part)
        if before.header.id == record.header.id:
            newer = {alert.number for alert in record.alerts}
            alerts = [each for each in before.alerts if each.number not in newer]
            record = RunRecord(
                record.header,
                before.windows + record.windows,
                alerts + record.alerts,
                before.events + record.events,
            )
    return record


def _load_part(path: Path) -> RunRecord:
    try:
        content = read_up_to(path, _MAX_BYTES)
    except FileNotFoundError:
        raise ArtefactError(
            f"there is no file {path}; `stash watch train.py` writes one", code="artefact_missing"
        ) from None
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror or error}") from None
    if len(content) > _MAX_BYTES:
        raise ArtefactError(
            f"{path} is larger than {_MAX_BYTES // 2**20} MB, which no record of `stash watch` is"
        )
    return read_lines(whole_lines(content), str(path))


class RecordWriter:
    """Writes one run's record; a full disk loses lines, says so once, and never what is there already.

    Nobody else writes one of that name meanwhile: raises UserError, which names who does. A job that ``goes_on`` with
    the record of an earlier start of it adds to that.
    """

    def __init__(self, path: Path, header: Header, goes_on: bool = False) -> None:
        self.path, self._lock = path, ExitStack()
        self.failed: str | None = None
        """Why the last line was not written."""
        self.before: RunRecord | None = None
        """What was there already."""
        flags = os.O_CREAT | os.O_EXCL
        with ExitStack() as held:
            if goes_on:
                held.enter_context(output_lock(path))
                self.before = load_record(path)
                flags = 0
                old = self.before.header
                if old.job != header.job:
                    raise UserError(
                        f"--output {path} is the record of {old.job}, and this is {header.job}; name another file"
                    )
                header = header.model_copy(update={name: getattr(old, name) for name in _KEPT})
            try:
                self._file = os.open(path, _TO_ADD | flags, 0o600)
            except FileExistsError:
                with output_lock(path):
                    raise UserError(
                        f"{path} is there already; name another record with --output"
                    ) from None
            except OSError as error:
                raise UserError(
                    f"cannot write {path}: {error.strerror}; choose another place with --output"
                ) from None
            try:
                if not goes_on:
                    held.enter_context(output_lock(path))
            except UserError:  # the file of one that still goes on was moved away
                self.close(keep=False)
                raise
            self._lock = held.pop_all()
        self.header = header
        """As it was written first."""
        self.write(header)

    def write(self, line: RecordLine) -> None:
        """Add a line."""
        text = json.dumps(line.model_dump(mode="json"), separators=(",", ":"))
        try:
            add_lines(self._file, f"{text}\n".encode())
            self.failed = None
        except OSError as error:
            self.failed = error.strerror or str(error)

    def close(self, keep: bool = True) -> None:
        """Write no more; what is not worth keeping is removed, unless somebody has moved it away."""
        with suppress(OSError):
            if not keep and os.path.samestat(os.fstat(self._file), os.lstat(self.path)):
                self.path.unlink()
        os.close(self._file)
        self._lock.close()
