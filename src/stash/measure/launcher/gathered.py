"""What the agents wrote in their journals, gathered from all launches of a job, and the profile that it makes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from statistics import fmean
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from stash.core.errors import StashError
from stash.core.ladder import UNTOUCHED
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
from stash.core.records.base import first_mistake, utc_now
from stash.core.records.host import Host
from stash.core.records.profile import Profile, RankLedger, Workload
from stash.core.version import __version__
from stash.measure.protocol.messages import (
    HostsSeen,
    JobFacts,
    LadderChosen,
    LadderEnded,
    LedgerKept,
    Message,
    Noted,
    PhaseBegun,
    RoundDone,
    RoundGivenUp,
    RoundsPlanned,
    SoftwareSeen,
)

T = TypeVar("T")
DIGITS, DIGITS_OF_A_STEP = 6, 5
"""Significant ones of what was measured in a block, and step by step: 1 and 10 microseconds in a second."""
MOST_LEFT_FILES = 1000
"""Names of what a job left that an artefact keeps."""


class GatheredRun:
    """The messages so far of one or several launches of a job."""

    def __init__(self) -> None:
        self.workload: dict[str, Any] = {}
        self.hosts: list[dict[str, Any]] = []
        self.ranks: dict[int, Rank] = {}
        self.software: dict[str, str] = {}
        self.rungs: list[str] = []
        self.blocks: list[Block] = []
        self.rates: list[Rate] = []
        self.collectives: list[Collective] = []
        self.workers: list[WorkerTimes] = []
        self.passes: list[StagePasses] = []
        self.ledgers: dict[int, RankLedger] = {}
        """Of the first launch: a later one starts where files are in memory already."""
        self.memory: dict[int, Memory] = {}
        """The most of each rank."""
        self.steps_of: dict[int, Launch] = {}
        """What a step of the job was, by launch."""
        self.skipped: dict[str, str] = {}
        self.excused: dict[str, str] = {}
        """Rungs the launcher gave up, with reasons better than the agents'."""
        self.notes: list[str] = []
        self.left_files: dict[str, None] = {}
        """Files and folders of the job's that were not there before."""
        self.took: list[float] = []
        """Seconds of each round's blocks."""
        self.planned: RoundsPlanned | None = None
        self.given_up: RoundGivenUp | None = None
        self.phase = PhaseBegun("starting")
        self.led = False
        """There was a message: rank 0 runs on this machine."""
        self.ended: LadderEnded | None = None
        """How the last launch's ladder did, which the launcher may see before its agents do."""

    @property
    def rounds(self) -> int:
        """How many are done, of all launches."""
        return len(self.took)

    @property
    def end(self) -> str | None:
        return None if self.ended is None else self.ended.reason

    @property
    def unsafe(self) -> str | None:
        return None if self.ended is None else self.ended.why

    def stand_in(self, rounds: Sequence[Block]) -> None:
        """These blocks, of one rung, are all rounds that there are."""
        self.rungs[:] = [rounds[0].rung]
        self.blocks[:] = [block for block in self.blocks if block.rung == UNTOUCHED.name]
        self.blocks.extend(rounds)

    def add_message(self, message: Message) -> None:
        """Add one message; raises StashError for one that no artefact could hold."""
        try:
            self._store_message(message)
        except ValidationError as error:
            raise _impossible_error(error, getattr(message, "kind", "block")) from None
        self.led = True

    def _store_message(self, message: Message) -> None:
        """Raises ValidationError, also for what records are made of only at the end."""
        match message:
            case PhaseBegun():
                self.phase = message
            case JobFacts():
                self._store_facts(message.facts)
            case HostsSeen():
                for host in message.hosts:
                    Host.model_validate(host)
                self.hosts[:] = self.hosts or message.hosts
            case SoftwareSeen():
                self.software.update(message.versions)
            case LadderChosen():
                self.rungs.extend(name for name in message.rungs if name not in self.rungs)
                self.skipped.update(message.skipped)
            case RoundsPlanned():
                self.planned = message
            case RoundGivenUp():
                self.given_up = message
            case LedgerKept():
                self.ledgers.setdefault(message.rank, RankLedger(**vars(message)))
            case Skipped():
                self.skipped[message.rung] = message.why
            case Noted():
                self.note(message.text)
            case RoundDone():
                self.took.append(message.seconds)
            case LadderEnded():
                self.ended = message
            case _:
                self._store_record(message)

    def _store_facts(self, facts: Mapping[str, Any]) -> None:
        unknown = facts.keys() - Workload.model_fields.keys()
        if unknown:
            raise StashError(f"the job's agents reported what is unknown: {min(unknown)}")
        Workload.model_validate({"command": (), "name": "", **facts})
        self.workload.update(facts)

    def _store_record(self, message: Message) -> None:
        """Of what a rank measured, as the artefact holds it."""
        match _make_record(message):
            case Rank() as rank:
                self.ranks.setdefault(rank.rank, rank)
            case Block() as block:
                self.blocks.append(block)
            case Rate() as rate:
                self.rates.append(rate)
            case WorkerTimes() as times:
                self.workers.append(times)
            case StagePasses() as passes:
                self.passes.append(passes)
            case Memory() as seen:
                self.memory[seen.rank] = _merge_memory(self.memory.get(seen.rank), seen)
            case Collective() as collective:
                self.collectives.append(collective)
            case Launch() as launch:
                self.steps_of.setdefault(launch.launch, launch)

    def note(self, *texts: str) -> None:
        """Add sentences for the profile's reader, each once."""
        self.notes.extend(text for text in texts if text not in self.notes)

    def profile(self, job: Workload, **known: Any) -> Profile:
        """The artefact of what was gathered, with what else of it is ``known``.

        Raises StashError if what follows from it cannot be.
        """
        skipped = {**self.skipped, **self.excused}
        return Profile(
            stash_version=__version__,
            created=utc_now(),
            workload=self._make_workload(job),
            hosts=self._make_hosts(),
            ranks=_sort_records(self.ranks),
            software=self.software,
            blocks=tuple(self.blocks),
            rates=tuple(self.rates),
            collectives=tuple(self.collectives),
            skipped=tuple(Skipped(rung=rung, why=why) for rung, why in skipped.items()),
            notes=tuple(self.notes),
            left_files=tuple(self.left_files)[:MOST_LEFT_FILES],
            launches=_sort_records(self.steps_of),
            workers=tuple(self.workers),
            passes=tuple(self.passes),
            memory=_sort_records(self.memory),
            ledgers=_sort_records(self.ledgers),
            **known,
        )

    def _make_hosts(self) -> tuple[Host, ...]:
        """Each with what its own host took of it during blocks."""
        steals: dict[int, list[float]] = defaultdict(list)
        for block in self.blocks:
            if block.steal is not None and block.rank in self.ranks:
                steals[self.ranks[block.rank].node].append(block.steal)
        taken = {node: {"steal_fraction": fmean(found)} for node, found in steals.items()}
        return tuple(Host(**host | taken.get(node, {})) for node, host in enumerate(self.hosts))

    def _make_workload(self, job: Workload) -> Workload:
        facts = {**job.model_dump(), **self.workload}
        facts |= disk_facts(self.blocks, [loader.get("samples") for loader in facts["loaders"]])
        facts["batch"] = samples_per_step(self.blocks) or facts["batch"]
        # one of a job that was started in several ways may have what another lacks
        spread = any(len(gradient.get("ready_steps", ())) > 1 for gradient in facts["gradients"])
        recorded = {"operators": bool(facts["operators"]), "ready_steps": spread}
        facts["unrecorded"] = {
            name: why for name, why in facts["unrecorded"].items() if not recorded.get(name)
        }
        try:
            return Workload.model_validate(facts)
        except ValidationError as error:
            raise _impossible_error(error, "workload") from None


def _sort_records(records: Mapping[int, T]) -> tuple[T, ...]:
    """In the order of their ranks, or launches."""
    return tuple(records[key] for key in sorted(records))


def _impossible_error(error: ValidationError, kind: str) -> StashError:
    return StashError(f"the job's agents reported what cannot be: {first_mistake(error, kind)}")


def _merge_memory(before: Memory | None, seen: Memory) -> Memory:
    """The most of each kind of memory."""
    known = [vars(each) for each in (before, seen) if each is not None]
    most: dict[str, Any] = {
        name: max((each[name] for each in known if each[name] is not None), default=None)
        for name in vars(seen)
    }
    return Memory(**most)


def _make_record(message: Message) -> Message:
    """A record within its bounds, with as many digits as mean something; raises ValidationError."""
    values = {each.name: getattr(message, each.name) for each in fields(message)}
    if not isinstance(message, (Collective, Launch)):
        values = {name: _cut_digits(value) for name, value in values.items()}
    record: Message = _make_reader(cast(Hashable, type(message))).validate_python(values)
    return record


@cache
def _make_reader(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _cut_digits(value: Any, digits: int = DIGITS) -> Any:
    """A number as the artefact keeps it: most of a large job's file are its digits."""
    if isinstance(value, tuple):
        return tuple(_cut_digits(each, DIGITS_OF_A_STEP) for each in value)
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def samples_per_step(blocks: list[Block]) -> int | None:
    """Samples a device trains on in a step of the job, on average over the blocks that were counted.

    Accumulation that ramps up, or batches made by size, have other steps than the first.
    """
    counted = [(block.samples, block.steps) for block in blocks if block.samples]
    if not counted:
        return None
    return round(sum(samples for samples, _ in counted) / sum(steps for _, steps in counted))


def disk_facts(blocks: list[Block], samples: list[int | None]) -> dict[str, float]:
    """What the cold blocks fetched per sample, and how large the data set of a single loader is at most.

    A fetch takes what lies around a sample with it, so samples times fetches may exceed the data set by far. Its
    files bound it: those opened for a sample each, and those of many samples, which are there once.
    """
    cold = [
        block for block in blocks if block.rung == "cold" and block.samples and block.storage_bytes
    ]
    if not cold:
        return {}
    trained = sum(block.samples or 0 for block in cold)
    fetched = sum(block.storage_bytes or 0 for block in cold) / trained
    if len(samples) != 1 or samples[0] is None:
        return {"sample_disk_bytes": fetched}
    opened = sum(block.file_bytes or 0 for block in cold) / trained
    files = samples[0] * opened + max(block.held_bytes or 0 for block in cold)
    whole = samples[0] * fetched
    return {"sample_disk_bytes": fetched, "dataset_bytes": min(whole, files) if files else whole}
