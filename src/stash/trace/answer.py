"""What traces say of a job, as the record that is saved: means over ranks, intervals over steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from statistics import fmean, median

import numpy as np

from stash.analysis.findings.rates import bus_bytes
from stash.core.grouping import group_by
from stash.core.intervals import Interval, mean_interval
from stash.core.records.base import utc_now
from stash.core.trace_records import (
    TRACE_PARTS,
    Supposition,
    Trace,
    TracedCollective,
    TracedRank,
    TracedStep,
    TracePart,
)
from stash.core.units import format_count
from stash.core.version import __version__
from stash.trace.critical_path import critical_paths
from stash.trace.kernels import COMPUTE, GRAPH, sounds_like_exchange
from stash.trace.meetings import OWN_PARTS, JobTimes, cause_of, last_shares
from stash.trace.spans import DEVICE, NANO, length
from stash.trace.step_parts import place_of

_HIDES = ("exchange", "transfer", "contention", "bubble")
"""Parts of which there may be more than a step shows."""
_WORTH = 0.01
"""Share of a step, below which nothing is supposed of a part, and no kernel is named."""
_MANY = 12
_ALONE = "the traces of other ranks are not there: exchange contains the waiting for them"


def trace_record(job: JobTimes, name: str, warnings: Sequence[str] = ()) -> Trace:
    """The record of a job's traces, which the file or folder ``name`` holds."""
    times = next(iter(job.ranks.values()))
    first = times.trace
    nodes = _nodes(job)
    step = _step_interval(job, lambda rank, number: sum(job.parts[rank][number].values()))
    alone = len(job.ranks) == 1
    world = first.world or len(job.ranks)
    has_others = world > 1 or (first.world is None and len(times.collectives) > 0)
    unknown = {"contention": _ALONE, "bubble": _ALONE} if alone and has_others else {}
    paths = critical_paths(job)
    # Parts of which there is any in a step, hidden or not, or on its path.
    every = [
        each[rank][n] for each in (job.parts, job.whole) for rank in job.ranks for n in job.steps
    ]
    there = {part for times in (*every, *paths.values()) for part, time in times.items() if time}
    traced = tuple(
        _part(job, part, step.value, paths)
        for part in TRACE_PARTS
        if part not in unknown and part in there
    )
    return Trace(
        stash_version=__version__,
        created=utc_now(),
        workload=name,
        tool=first.tool,
        world_size=world,
        nodes=len(set(nodes.values())) if nodes else None,
        backend=first.backend,
        device="device" if first.has_device else "cpu",
        step=step,
        traced=traced,
        ranks=tuple(_rank(job, rank, last, nodes) for rank, last in last_shares(job)),
        steps=_steps(job),
        collectives=tuple(_collectives(job, nodes)),
        suppositions=tuple(_suppositions(job, step.value, traced, world)),
        unknown=unknown,
        like_exchange=_like_exchange(job, step.value),
        warnings=(*warnings, *_warnings(job, world)),
    )


def _step_interval(job: JobTimes, nanoseconds: Callable[[int, int], float]) -> Interval:
    """Seconds, mean over ranks, of each step that counts."""
    return mean_interval(
        [fmean(nanoseconds(rank, number) for rank in job.ranks) / NANO for number in job.steps]
    )


def _part(
    job: JobTimes, part: str, step: float, paths: Mapping[int, Mapping[str, int]]
) -> TracePart:
    time = _step_interval(job, lambda rank, number: job.parts[rank][number][part])
    whole = (
        _step_interval(job, lambda rank, number: job.whole[rank][number].get(part, 0))
        if part in _HIDES
        else None
    )
    places = [
        place_of(job.ranks[rank], moments)
        for rank, moments in job.idle.get(part, {}).items()
        if length(moments)
    ]
    return TracePart(
        name=part,
        time=time,
        share=time.value / step,
        whole_seconds=None if whole is None else whole.value,
        path_seconds=fmean(path.get(part, 0) for path in paths.values()) / NANO if paths else None,
        place=max(filter(None, places), key=places.count, default=""),
    )


def _rank(job: JobTimes, rank: int, last: float, nodes: Mapping[int, int]) -> TracedRank:
    steps = [job.parts[rank][number] for number in job.steps]
    alone = len(job.ranks) == 1
    late = fmean(job.lateness[rank].values()) / NANO / max(1, len(job.ranks) - 1)
    seconds = fmean(sum(each.values()) for each in steps) / NANO
    return TracedRank(
        rank=rank,
        node=nodes.get(rank),
        step_seconds=seconds,
        parts={part: fmean(each[part] for each in steps) / NANO for part in TRACE_PARTS},
        last_share=None if alone or not job.meetings else last,
        late_seconds=None if alone or not job.meetings else late,
        late_by=cause_of(job, rank)[0] if not alone and late > _WORTH * seconds else "",
    )


def _steps(job: JobTimes) -> tuple[TracedStep, ...]:
    found = [
        TracedStep(number=number, seconds=None, why_left_out=why)
        for number, why in job.left_out.items()
    ]
    for number in job.steps:
        parts = {
            part: fmean(job.parts[rank][number][part] for rank in job.ranks) / NANO
            for part in TRACE_PARTS
        }
        found.append(TracedStep(number=number, seconds=sum(parts.values()), parts=parts))
    return tuple(sorted(found, key=lambda each: each.number))


def _nodes(job: JobTimes) -> dict[int, int]:
    """The node of each rank, by number; empty where a trace does not tell machines apart."""
    names = {rank: times.trace.node for rank, times in sorted(job.ranks.items())}
    if not all(names.values()):
        return {}
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    return {rank: numbers[name] for rank, name in names.items()}


# Collectives


def _collectives(job: JobTimes, nodes: Mapping[int, int]) -> list[TracedCollective]:
    """The costliest kinds first."""
    counted = (meeting for meeting in job.meetings if meeting.step in job.steps)
    kinds = group_by(counted, lambda each: (each.op, each.group, each.ranks, each.bytes))
    found = []
    for (op, group, ranks, size), meetings in kinds.items():
        seconds = fmean(meeting.transfer for meeting in meetings) / NANO
        waits = [length(each.wait(rank)) for each in meetings for rank in each.spans]
        bus = bus_bytes(op, len(ranks), size)
        where = "inside a node" if len({nodes.get(rank) for rank in ranks}) == 1 else "across nodes"
        found.append(
            TracedCollective(
                op=op,
                group=group,
                ranks=len(ranks),
                where=where if all(rank in nodes for rank in ranks) else "",
                each_step=len(meetings) / len(job.steps),
                bytes=size,
                seconds=seconds,
                wait_seconds=fmean(waits) / NANO,
                bus_bytes_per_second=bus / seconds if bus and seconds > 0 else None,
            )
        )
    return sorted(found, key=lambda each: -each.each_step * (each.seconds + each.wait_seconds))[
        :_MANY
    ]


# What if


def _suppositions(
    job: JobTimes, step: float, traced: Sequence[TracePart], world: int
) -> list[Supposition]:
    found = []
    if job.meetings:
        saved = {rank: fmean(steps.values()) / NANO for rank, steps in job.saved.items()}
        rank = max(saved, key=lambda each: saved[each])
        if saved[rank] > _WORTH * step:
            text = f"rank {rank} arrives no later than the next one"
            found.append(
                Supposition(name=f"rank {rank} in time", text=text, step_seconds=step - saved[rank])
            )
        # A step without differences between ranks and steps. With what a step takes now it makes S of Lin et al.,
        # "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), of jobs without a
        # pipeline: that one's S needs its schedule.
        every = [job.parts[rank][number] for rank in job.ranks for number in job.steps]
        own = fmean(sum(parts[name] for name in OWN_PARTS) for parts in every)
        alike = (own + median(parts["exchange"] for parts in every)) / NANO
        text = "computing takes its mean, and exchange its median, of all ranks and steps"
        has_stages = any(meeting.is_point_to_point for meeting in job.meetings)
        if len(job.ranks) == world and not job.unmatched and not has_stages:
            text += f": S is {step / alike:.3f}"
        found.append(Supposition(name="ranks alike", text=text, step_seconds=alike))
    for part in traced:
        if part.name != "compute" and part.share > _WORTH:
            found.append(
                Supposition(name=f"no {part.name}", text="", step_seconds=step - part.seconds)
            )
    return found


def _like_exchange(job: JobTimes, step: float) -> dict[str, float]:
    """Kernels that count as compute and sound like communication, with their share of the step."""
    times = next(iter(job.ranks.values()))
    names = times.trace.names
    device = times.trace.spans[DEVICE]
    spent = np.bincount(
        device.label, weights=(device.stop - device.start).astype(np.float64), minlength=len(names)
    )
    whole = step * NANO * max(1, len(job.steps))
    return {
        names[label]: spent[label] / whole
        for label in np.argsort(-spent)[:200].tolist()
        if spent[label] > _WORTH * whole
        and times.classes[label] == COMPUTE
        and label not in times.trace.facts
        and sounds_like_exchange(names[label])
    }


def _warnings(job: JobTimes, world: int) -> list[str]:
    found = [
        f"{times.trace.file}: {sentence}"
        for times in job.ranks.values()
        for sentence in times.trace.damage
    ]
    if any(GRAPH in times.trace.names for times in job.ranks.values()):
        found.append(
            "CUDA graphs were recorded whole, and count as compute, whatever is in them; record with "
            "`nsys profile --cuda-graph-trace=node`."
        )
    missing = world - len(job.ranks)
    if missing > 0:
        first = list(
            islice((str(rank) for rank in count() if rank not in job.ranks), min(missing, _MANY))
        )
        names = ", ".join(first) + (" …" if missing > _MANY else "")
        found.append(
            f"The traces of {format_count(missing, 'rank')} of {world} are missing ({names}): waiting for these "
            "counts as exchange."
        )
    return [*found, *(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in job.unmatched)]
