"""The record of a watched run: a header, then windows, alerts and events, a line of JSON each; and reading it back.

A file that grows beyond its limit is moved aside, and the next one begins with the header and the alerts that are
open. Seconds and UTC; ``null`` is unknown. Fields may be added without a new version; the history is in
``docs/format.md``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from stash.core.documents import WATCH_SUFFIX
from stash.core.errors import ArtefactError, UserError
from stash.core.files import parse_json, read_up_to, write_whole
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
ROTATED_BYTES = 16 << 20
"""Of a file, from which on another is begun: at a megabyte an hour most of a day."""
_TO_ADD = TO_ADD | os.O_NOFOLLOW
_MAX_BYTES = 2**26
_KEPT = ("id", "began", "booted", "part")
"""Of a header that is written again: who made it does not know which file this is."""


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
    """Of a record that was continued in another file: which one this is."""


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


def load_record(path: Path, whole: bool = True) -> RunRecord:
    """The record at ``path``, with what was moved aside if ``whole``; raises ArtefactError.

    A last line cut short is left out.
    """
    record = _load_part(path)
    if whole:
        aside = [
            part for part in newest_parts(path) if (_part_number(part) or 0) < record.header.part
        ]
        for part in reversed(aside):
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
            f"{path} is larger than {_MAX_BYTES // 2**20} MB, which no record of `stash watch` is: it goes on in "
            "another file long before"
        )
    texts = [each for each in enumerate(whole_lines(content), 1) if not each[1].startswith(_SUMS)]
    lines = [parse_line(text, f"{path}, line {number}") for number, text in texts]
    if not lines or not isinstance(lines[0], Header):
        raise ArtefactError(
            f"{path} is not the record of a watched run: it does not begin with its header"
        )
    if lines[0].watch_schema > SCHEMA:
        raise ArtefactError(
            f"{path} was made by a newer Stash (schema {lines[0].watch_schema}; this one reads up to {SCHEMA}); "
            "upgrade Stash to read it",
            code="artefact_newer",
        )
    record = RunRecord(lines[0])
    for line in lines:
        record.add_line(line)
    return record


class RecordWriter:
    """Writes one run's record; a full disk loses lines, says so once, and never what is there already.

    Nobody else writes one of that name meanwhile: raises UserError, which names who does. A job that ``goes_on`` with
    the record of an earlier start of it adds to that.
    """

    def __init__(
        self, path: Path, header: Header, rotated: int = ROTATED_BYTES, goes_on: bool = False
    ) -> None:
        self.path, self._rotated, self._lock = path, rotated, ExitStack()
        self.failed: str | None = None
        """Why the last line was not written."""
        self.before: RunRecord | None = None
        """What was there already."""
        self._header = header
        flags = os.O_CREAT | os.O_EXCL
        with ExitStack() as held:
            if goes_on:
                held.enter_context(output_lock(path))
                self.before = load_record(path, whole=False)
                flags = 0
                self._header = self.before.header
                old = header.job
                if self._header.job != old:
                    raise UserError(
                        f"--output {path} is the record of {self._header.job}, and this is {old}; name another file"
                    )
            alerts = [] if self.before is None else self.before.alerts
            self._open = {alert.number: alert for alert in alerts if not alert.ended}
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
        self.write(header)

    @property
    def header(self) -> Header:
        """As it was written last."""
        return self._header

    def write(self, line: RecordLine) -> None:
        """Add a line."""
        text = _encode_line(line)
        size = os.fstat(self._file).st_size
        if size and size + len(text) > self._rotated:
            self._rotate()
        if isinstance(line, Header):
            self._header = line.model_copy(
                update={name: getattr(self._header, name) for name in _KEPT}
            )
            text = _encode_line(self._header)
        try:
            add_lines(self._file, text)
            self.failed = None
        except OSError as error:
            self.failed = error.strerror or str(error)
        if isinstance(line, Alert):
            self._open[line.number] = line
            if line.ended:
                del self._open[line.number]

    def _rotate(self) -> None:
        """Move the file aside and go on in another, which begins with what is needed to read it alone."""
        number = self._header.part
        stem = self.path.name.removesuffix(SUFFIX)
        while (aside := self.path.with_name(f"{stem}.{number}{SUFFIX}")).exists():
            number += 1  # of an earlier run, whose last file is gone
        header = self._header.model_copy(update={"part": number + 1})
        begin = b"".join(map(_encode_line, (header, *self._open.values())))
        if not self._is_in_place():
            return
        try:
            try:  # a second name, so that the first is never free for somebody else to take
                os.link(self.path, aside)
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                os.rename(self.path, aside)
            write_whole(self.path, begin, mode=0o600, lasting=False)
            new = os.open(self.path, _TO_ADD)
        except OSError as error:
            self.failed = error.strerror or str(error)
            if self._is_in_place():
                aside.unlink(missing_ok=True)
            return
        os.close(self._file)
        self._file = new
        self._header = header

    def _is_in_place(self) -> bool:
        """Whether the file that is written is the one of that name; somebody may have moved it away."""
        try:
            return os.path.samestat(os.fstat(self._file), os.lstat(self.path))
        except OSError:
            return False

    def close(self, keep: bool = True) -> None:
        """Write no more; what is not worth keeping is removed."""
        if not keep and self._is_in_place():
            self.path.unlink(missing_ok=True)
        os.close(self._file)
        self._lock.close()


def _encode_line(line: Record) -> bytes:
    return (json.dumps(line.model_dump(mode="json"), separators=(",", ":")) + "\n").encode()


def newest_parts(path: Path) -> Sequence[Path]:
    """The files of a record that were moved aside, the oldest first."""
    stem = path.name.removesuffix(SUFFIX)
    found = {
        part: number
        for part in path.parent.glob(f"{stem}.*{SUFFIX}")
        if (number := _part_number(part)) is not None
    }
    return sorted(found, key=lambda part: found[part])


def _part_number(part: Path) -> int | None:
    text = part.name.removesuffix(SUFFIX).rpartition(".")[2]
    return int(text) if text.isdecimal() else None
