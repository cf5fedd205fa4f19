"""Traces of several ranks together: which collectives are one and the same, who arrived last, and what that cost.

Of a collective, the last rank to arrive needs only the transfer; what the others need longer, they waited for it.
That rests on durations, so no common clock is needed. Nothing is said of collectives that cannot be matched.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

import numpy as np

from stash.core.errors import UserError
from stash.core.formatting import join_names
from stash.trace.kernels import COMPUTE, EXCHANGE
from stash.trace.spans import (
    FRAME,
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
    parts: Mapping[int, Mapping[int, Mapping[str, int]]]
    """Nanoseconds by rank, step and part."""
    whole: Mapping[int, Mapping[int, Mapping[str, int]]]
    """The same, hidden or not."""
    lateness: Mapping[int, Mapping[int, int]]
    """Nanoseconds that all other ranks together waited for a rank and were not hidden, by that rank and step."""
    saved: Mapping[int, Mapping[int, int]]
    """Nanoseconds by which a step would be shorter had a rank not been later than the next one, likewise."""
    idle: Mapping[str, Mapping[int, Nanoseconds]]
    """Interval sets of what has a place in the script, by part and rank; of traces with stacks."""


def job_times(ranks: Mapping[int, RankTimes]) -> JobTimes:
    """What all ranks' steps are made of; raises UserError where no step of theirs is common."""
    meetings, unmatched = _meetings(ranks)
    waits = _waits(ranks, meetings)
    left_out = _left_out(ranks)
    numbers = sorted(
        {step.number for times in ranks.values() for step in times.steps} - set(left_out)
    )
    windows = {rank: {step.number: step for step in times.steps} for rank, times in ranks.items()}
    placed = {
        rank: _PLACED if len(times.trace.spans[FRAME]) else () for rank, times in ranks.items()
    }
    parts: dict[int, dict[int, dict[str, int]]] = {rank: {} for rank in ranks}
    sets: dict[int, dict[int, dict[str, Nanoseconds]]] = {rank: {} for rank in ranks}
    for rank, number in product(ranks, numbers):
        found = parts_of(ranks[rank], windows[rank][number], waits[rank])
        parts[rank][number] = {name: length(each) for name, each in found.items()}
        # others may be large
        sets[rank][number] = {name: found[name] for name in (*_WAITING, *placed[rank])}
    if len(ranks) > 1 and (apart := _began_apart(parts, numbers)):
        left_out[numbers[0]] = apart
        numbers = numbers[1:]
    if not numbers:
        raise UserError(
            f"no step is whole on all ranks: {next(iter(left_out.values()), 'there is none')}; try --whole"
        )
    whole = {
        rank: {n: _whole_seconds(ranks[rank], windows[rank][n], waits[rank]) for n in numbers}
        for rank in ranks
    }
    idle = {
        name: {
            rank: join_sets(sets[rank][number][name] for number in numbers)
            for rank in ranks
            if placed[rank]
        }
        for name in _PLACED
    }
    lateness, saved = _lateness(ranks, meetings, sets, numbers)
    return JobTimes(
        ranks, meetings, unmatched, tuple(numbers), left_out, parts, whole, lateness, saved, idle
    )


def _whole_seconds(
    times: RankTimes, step: StepWindow, waits: Mapping[str, Nanoseconds]
) -> dict[str, int]:
    inside = window(step.start, step.stop)
    exchange = subtract_set(times.sets[EXCHANGE], join_sets(waits.values()))
    covered = {
        "compute": times.sets[COMPUTE],
        "exchange": exchange,
        "transfer": times.sets["copy"],
        **waits,
    }
    return {name: length(common(inside, found)) for name, found in covered.items()}


def _left_out(ranks: Mapping[int, RankTimes]) -> dict[int, str]:
    """Why steps are left out: incomplete on a rank, or not there."""
    found: dict[int, str] = {}
    numbers = {step.number for times in ranks.values() for step in times.steps}
    for rank, times in ranks.items():
        own = {step.number: step for step in times.steps}
        for number in numbers:
            if number not in own:
                found[number] = f"rank {rank} has no step {number}"
            elif why := own[number].why_incomplete or (
                "it is empty" if not own[number].nanoseconds else ""
            ):
                found[number] = f"rank {rank}: {why}"
    return found


def _began_apart(
    parts: Mapping[int, Mapping[int, Mapping[str, int]]], numbers: Sequence[int]
) -> str:
    """Why the first step is left out, if profilers that were started one after the other are in it."""
    if len(numbers) < 3:
        return ""
    waited = [max(steps[number]["contention"] for steps in parts.values()) for number in numbers]
    usual = median(waited[1:])
    step = median(sum(steps[number].values()) for steps in parts.values() for number in numbers[1:])
    if waited[0] > _APART * usual and waited[0] - usual > _APART_SHARE * step:
        return f"profilers did not start together: ranks waited {waited[0] / 1e6:.1f} ms in it"
    return ""


# Matching


def _meetings(ranks: Mapping[int, RankTimes]) -> tuple[tuple[Meeting, ...], tuple[str, ...]]:
    """Collectives that are the same, and why others could not be matched."""
    joined_by: dict[Hashable, dict[int, int]] = defaultdict(dict)
    by_order: dict[tuple[Hashable, int], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for rank, times in ranks.items():
        for index, step in enumerate(times.collective_steps):
            key, sequence = _identity(rank, times, index)
            if sequence is not None:
                joined_by[key, sequence][rank] = index
            elif step >= 0:
                by_order[key, step][rank].append(index)
    problems: Counter[str] = Counter()
    for (key, step), found in by_order.items():
        ops = [[_op(ranks[rank], index) for index in indices] for rank, indices in found.items()]
        if any(each != ops[0] for each in ops):
            problems[
                f"ranks {join_names([str(rank) for rank in sorted(found)])} did not run the same collectives"
            ] += 1
            continue
        for order, each in enumerate(zip(*found.values(), strict=True)):
            joined_by[key, step, order] = dict(zip(found, each, strict=True))
    meetings = [_meeting(ranks, found) for found in joined_by.values() if len(found) > 1]
    alone = sum(len(found) == 1 for found in joined_by.values())
    notes = [
        f"in {count} steps {problem}, so that who waited there is unknown"
        for problem, count in problems.items()
    ]
    if alone and len(ranks) > 1:
        notes.append(f"{alone} collectives are in the trace of one rank alone")
    return tuple(sorted(meetings, key=lambda each: (each.step, min(each.spans.items())[1]))), tuple(
        notes
    )


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


def _waits(
    ranks: Mapping[int, RankTimes], meetings: Sequence[Meeting]
) -> dict[int, dict[str, Nanoseconds]]:
    """When each rank waited for others, less when anything was transferred meanwhile."""
    found: dict[int, dict[str, list[Nanoseconds]]] = {
        rank: {"contention": [], "bubble": []} for rank in ranks
    }
    moved: dict[int, list[Nanoseconds]] = {rank: [] for rank in ranks}
    for meeting in meetings:
        kind = "bubble" if meeting.is_point_to_point else "contention"
        for rank, (_, stop) in meeting.spans.items():
            found[rank][kind].append(meeting.wait(rank))
            moved[rank].append(window(stop - meeting.transfer, stop))
    waits = {}
    for rank, kinds in found.items():
        transfers = join_sets(moved[rank])
        contention = subtract_set(join_sets(kinds["contention"]), transfers)
        bubble = subtract_set(subtract_set(join_sets(kinds["bubble"]), transfers), contention)
        waits[rank] = {"contention": contention, "bubble": bubble}
    return waits


def _lateness(
    ranks: Mapping[int, RankTimes],
    meetings: Sequence[Meeting],
    sets: Mapping[int, Mapping[int, Mapping[str, Nanoseconds]]],
    numbers: Sequence[int],
) -> tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]]:
    """What others waited for each rank and was not hidden, and what all of them would save."""
    lateness = {rank: dict.fromkeys(numbers, 0) for rank in ranks}
    saved = {rank: dict.fromkeys(numbers, 0) for rank in ranks}
    exposed = {
        rank: join_sets(found[name] for found in steps.values() for name in _WAITING)
        for rank, steps in sets.items()
    }
    earliest = int(np.iinfo(np.int64).min)
    reached = dict.fromkeys(ranks, earliest)
    for meeting in (each for each in meetings if each.step in numbers):
        last = meeting.last
        transfer = meeting.transfer
        waited = []
        for rank, (_, stop) in meeting.spans.items():
            if rank != last:
                mine = common(meeting.wait(rank), exposed[rank])
                waited.append(length(subtract_set(mine, window(earliest, reached[rank]))))
                reached[rank] = max(reached[rank], stop - transfer)
        lateness[last][meeting.step] += sum(waited)
        saved[last][meeting.step] += min(waited, default=0)
    return lateness, saved


def cause_of(job: JobTimes, rank: int) -> tuple[str, float]:
    """The part of its steps on which this rank spends most beyond the others' median, and seconds a step of that."""

    def mean(one: int, part: str) -> float:
        return float(np.mean([job.parts[one][number][part] for number in job.steps]))

    excess = {
        part: mean(rank, part) - median(mean(other, part) for other in job.ranks if other != rank)
        for part in OWN_PARTS
    }
    part = max(excess, key=lambda each: excess[each])
    return part, excess[part] / 1e9


def last_shares(job: JobTimes) -> Iterator[tuple[int, float]]:
    """Of the collectives of all steps that count, how many each rank arrived last at, as a share."""
    met = [meeting for meeting in job.meetings if meeting.step in job.steps]
    last = Counter(meeting.last for meeting in met)
    for rank in sorted(job.ranks):
        joined_by = sum(rank in meeting.spans for meeting in met)
        yield rank, last[rank] / joined_by if joined_by else 0.0
