"""Traces of several ranks together: which collectives are one and the same, who arrived last, and what that cost.

Of a collective, the last rank to arrive needs only the transfer; what the others need longer, they waited for it.
That rests on durations, so no common clock is needed. Nothing is said of collectives that cannot be matched.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.trace.kernels import COMPUTE, COPY, EXCHANGE
from stash.trace.spans import (
    FRAME,
    NANO,
    CollectiveFacts,
    Nanoseconds,
    common,
    join_sets,
    length,
    subtract_set,
    window,
)
from stash.trace.step_parts import PARTS, RankTimes, StepWindow, parts_of

_POINT_TO_POINT = ("send", "recv", "isend", "irecv")
_OP = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce|gather|scatter|barrier|send|recv"
)
_APART, _APART_SHARE = 5.0, 0.1
"""A first step that waits so many times longer than the others do, by so much of a step, began at different times."""
_WAITING = ("contention", "bubble")
_PLACED = ("input", "loop", "host")
OWN_PARTS = tuple(part for part in PARTS if part not in (*_WAITING, "exchange"))
"""Parts of a step that a rank spends by itself."""
RankStep = tuple[int, int]
"""A rank, and the number of its step."""


@dataclass(frozen=True)
class Meeting:
    """One collective that several ranks joined, on the clock of each."""

    op: str
    group: str
    ranks: tuple[int, ...]
    step: int
    spans: Mapping[int, tuple[int, int]]
    """Start and stop, by rank."""
    bytes: int | None

    @property
    def is_point_to_point(self) -> bool:
        return self.op == "send"

    @property
    def transfer(self) -> int:
        """Nanoseconds that the last to arrive needed: the transfer, or more where a rank's trace is missing."""
        return min(stop - start for start, stop in self.spans.values())

    @property
    def last(self) -> int:
        """The rank that arrived last."""
        return min(self.spans, key=lambda rank: (self.spans[rank][1] - self.spans[rank][0], rank))

    def wait(self, rank: int) -> Nanoseconds:
        """When this rank waited for the last one."""
        start, stop = self.spans[rank]
        return window(start, stop - self.transfer)


@dataclass(frozen=True)
class JobTimes:
    """All ranks' times, and what they did together."""

    ranks: Mapping[int, RankTimes]
    meetings: tuple[Meeting, ...]
    unmatched: tuple[str, ...]
    """Why collectives could not be matched, as sentences."""
    steps: tuple[int, ...]
    """Numbers of the steps that count, in order."""
    left_out: Mapping[int, str]
    """Why other steps do not."""
    parts: Mapping[RankStep, Mapping[str, int]]
    """Nanoseconds by part."""
    whole: Mapping[RankStep, Mapping[str, int]]
    """The same, hidden or not."""
    lateness: Mapping[int, int]
    """Nanoseconds that all other ranks together waited for a rank and were not hidden, in all steps."""
    saved: Mapping[int, int]
    """Nanoseconds by which all steps would be shorter had a rank not been later than the next one."""
    idle: Mapping[str, Mapping[int, Nanoseconds]]
    """Interval sets of what has a place in the script, by part and rank; of traces with stacks."""

    @property
    def counted_meetings(self) -> list[Meeting]:
        """Those of steps that count."""
        return [meeting for meeting in self.meetings if meeting.step in self.steps]

    def mean_seconds(self, rank: int, part: str) -> float:
        """Of a rank's step."""
        return fmean(self.parts[rank, number][part] for number in self.steps) / NANO


def job_times(ranks: Mapping[int, RankTimes]) -> JobTimes:
    """What all ranks' steps are made of; raises UserError where no step of theirs is common."""
    meetings, unmatched = _meetings(ranks)
    waits = _waits(ranks, meetings)
    windows = {(rank, step.number): step for rank, times in ranks.items() for step in times.steps}
    left_out = _left_out(ranks, windows)
    numbers = sorted({number for _, number in windows} - set(left_out))
    parts: dict[RankStep, dict[str, int]] = {}
    sets: dict[RankStep, dict[str, Nanoseconds]] = {}
    for rank, number in product(ranks, numbers):
        found = parts_of(ranks[rank], windows[rank, number], waits[rank])
        parts[rank, number] = {name: length(moments) for name, moments in found.items()}
        # others may be large
        sets[rank, number] = {name: found[name] for name in (*_WAITING, *_PLACED)}
    if len(ranks) > 1 and (apart := _began_apart(parts, ranks, numbers)):
        left_out[numbers[0]] = apart
        numbers = numbers[1:]
    if not numbers:
        raise UserError(
            f"no step is whole on all ranks: {next(iter(left_out.values()), 'there is none')}; try --whole"
        )
    placed = [rank for rank, times in ranks.items() if len(times.trace.spans[FRAME])]
    exposed = {
        rank: join_sets(sets[rank, number][name] for number in numbers for name in _WAITING)
        for rank in ranks
    }
    lateness, saved = _lateness(meetings, exposed, numbers)
    return JobTimes(
        ranks=ranks,
        meetings=meetings,
        unmatched=unmatched,
        steps=tuple(numbers),
        left_out=left_out,
        parts=parts,
        whole={
            (rank, number): _whole_times(ranks[rank], windows[rank, number], waits[rank])
            for rank, number in product(ranks, numbers)
        },
        lateness=lateness,
        saved=saved,
        idle={
            name: {
                rank: join_sets(sets[rank, number][name] for number in numbers) for rank in placed
            }
            for name in _PLACED
        },
    )


def _whole_times(
    times: RankTimes, step: StepWindow, waits: Mapping[str, Nanoseconds]
) -> dict[str, int]:
    covered = {
        "compute": times.sets[COMPUTE],
        "exchange": subtract_set(times.sets[EXCHANGE], join_sets(waits.values())),
        "transfer": times.sets[COPY],
        **waits,
    }
    inside = window(step.start, step.stop)
    return {name: length(common(inside, found)) for name, found in covered.items()}


def _left_out(ranks: Iterable[int], windows: Mapping[RankStep, StepWindow]) -> dict[int, str]:
    """Why steps are left out: incomplete on a rank, or not there."""
    found: dict[int, str] = {}
    for rank, number in product(ranks, {number for _, number in windows}):
        step = windows.get((rank, number))
        if step is None:
            found[number] = f"rank {rank} has no step {number}"
        elif step.why_incomplete or not step.nanoseconds:
            found[number] = f"rank {rank}: {step.why_incomplete or 'it is empty'}"
    return found


def _began_apart(
    parts: Mapping[RankStep, Mapping[str, int]], ranks: Iterable[int], numbers: Sequence[int]
) -> str:
    """Why the first step is left out, if profilers that were started one after the other are in it."""
    if len(numbers) < 3:
        return ""
    first, *others = (max(parts[rank, n]["contention"] for rank in ranks) for n in numbers)
    usual = median(others)
    step = median(sum(parts[key].values()) for key in product(ranks, numbers[1:]))
    if first > _APART * usual and first - usual > _APART_SHARE * step:
        return f"profilers did not start together: ranks waited {first / 1e6:.1f} ms in it"
    return ""


# Matching


def _meetings(ranks: Mapping[int, RankTimes]) -> tuple[tuple[Meeting, ...], tuple[str, ...]]:
    """Collectives that are the same, and why others could not be matched."""
    joined_by: dict[Hashable, dict[int, int]] = defaultdict(dict)
    by_order: dict[Hashable, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for rank, times in ranks.items():
        for index, step in enumerate(times.collective_steps):
            key, sequence = _identity(rank, times, index)
            if sequence is not None:
                joined_by[key, sequence][rank] = index
            elif step >= 0:
                by_order[key, step][rank].append(index)
    problems: Counter[str] = Counter()
    for key_and_step, found in by_order.items():
        ops = [[_op(ranks[rank], index) for index in indices] for rank, indices in found.items()]
        if any(own != ops[0] for own in ops):
            names = join_names([str(rank) for rank in sorted(found)])
            problems[f"ranks {names} did not run the same collectives"] += 1
            continue
        for order, indices in enumerate(zip(*found.values(), strict=True)):
            joined_by[key_and_step, order] = dict(zip(found, indices, strict=True))
    meetings = [_meeting(ranks, found) for found in joined_by.values() if len(found) > 1]
    meetings.sort(key=lambda meeting: (meeting.step, min(meeting.spans.items())[1]))
    notes = [
        f"in {count} steps {problem}, so that who waited there is unknown"
        for problem, count in problems.items()
    ]
    alone = sum(len(found) == 1 for found in joined_by.values())
    if alone and len(ranks) > 1:
        notes.append(f"{alone} collectives are in the trace of one rank alone")
    return tuple(meetings), tuple(notes)


def _identity(rank: int, times: RankTimes, index: int) -> tuple[Hashable, int | None]:
    """What ranks that join one collective say alike, and its number if it has one."""
    _, facts = _label_and_facts(times, index)
    if facts is None:
        return "", None
    if facts.op.lower().startswith(_POINT_TO_POINT) and facts.peer is not None:
        return ("pair", min(rank, facts.peer), max(rank, facts.peer)), None
    ranks = facts.ranks or times.trace.groups.get(facts.group, ())
    return (facts.group, ranks), facts.sequence


def _label_and_facts(times: RankTimes, index: int) -> tuple[int, CollectiveFacts | None]:
    label = int(times.collectives.label[index])
    return label, times.trace.facts.get(label)


def _op(times: RankTimes, index: int) -> str:
    """What a collective does, by its facts, else by its name."""
    label, facts = _label_and_facts(times, index)
    name = facts.op if facts is not None else times.trace.names[label]
    if "sendrecv" in name.lower():
        return "sendrecv"  # of all-to-alls too
    found = _OP.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    text = name[:40] if found is None else found[0].replace("_", "")
    return "send" if text == "recv" else text


def _meeting(ranks: Mapping[int, RankTimes], found: Mapping[int, int]) -> Meeting:
    first = next(iter(found))
    times = ranks[first]
    index = found[first]
    _, facts = _label_and_facts(times, index)
    facts = facts or CollectiveFacts(ranks=tuple(ranks))
    members = facts.ranks or times.trace.groups.get(facts.group, tuple(found))
    return Meeting(
        op=_op(times, index),
        group=facts.group,
        ranks=tuple(sorted(members)),
        step=times.collective_steps[index],
        spans={
            rank: (int(ranks[rank].collectives.start[at]), int(ranks[rank].collectives.stop[at]))
            for rank, at in found.items()
        },
        bytes=facts.bytes,
    )


# Waiting


def _waits(ranks: Iterable[int], meetings: Sequence[Meeting]) -> dict[int, dict[str, Nanoseconds]]:
    """When each rank waited for others, less when anything was transferred meanwhile."""
    found: dict[tuple[int, str], list[Nanoseconds]] = defaultdict(list)
    for meeting in meetings:
        kind = "bubble" if meeting.is_point_to_point else "contention"
        for rank, (_, stop) in meeting.spans.items():
            found[rank, kind].append(meeting.wait(rank))
            found[rank, EXCHANGE].append(window(stop - meeting.transfer, stop))
    waits = {}
    for rank in ranks:
        contention, bubble, moved = (join_sets(found[rank, kind]) for kind in (*_WAITING, EXCHANGE))
        contention = subtract_set(contention, moved)
        bubble = subtract_set(subtract_set(bubble, moved), contention)
        waits[rank] = {"contention": contention, "bubble": bubble}
    return waits


def _lateness(
    meetings: Sequence[Meeting], exposed: Mapping[int, Nanoseconds], numbers: Sequence[int]
) -> tuple[Counter[int], Counter[int]]:
    """What others waited for each rank and was not hidden, and what all of them would save."""
    lateness, saved = Counter(dict.fromkeys(exposed, 0)), Counter(dict.fromkeys(exposed, 0))
    earliest = int(np.iinfo(np.int64).min)
    reached = dict.fromkeys(exposed, earliest)
    for meeting in (each for each in meetings if each.step in numbers):
        waited = []
        for rank, (_, stop) in meeting.spans.items():
            if rank != meeting.last:
                mine = common(meeting.wait(rank), exposed[rank])
                waited.append(length(subtract_set(mine, window(earliest, reached[rank]))))
                reached[rank] = max(reached[rank], stop - meeting.transfer)
        lateness[meeting.last] += sum(waited)
        saved[meeting.last] += min(waited, default=0)
    return lateness, saved


def cause_of(job: JobTimes, rank: int) -> str:
    """The part of its steps on which this rank spends most beyond the others' median."""
    others = [other for other in job.ranks if other != rank]

    def excess(part: str) -> float:
        usual = median(job.mean_seconds(other, part) for other in others)
        return job.mean_seconds(rank, part) - usual

    return max(OWN_PARTS, key=excess)


def last_shares(job: JobTimes) -> Iterator[tuple[int, float]]:
    """Of the collectives of all steps that count, how many each rank arrived last at, as a share."""
    met = job.counted_meetings
    last = Counter(meeting.last for meeting in met)
    for rank in sorted(job.ranks):
        joined_by = sum(rank in meeting.spans for meeting in met)
        yield rank, last[rank] / joined_by if joined_by else 0.0
