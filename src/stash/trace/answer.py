"""What traces say of a job, as the record that is saved: means over ranks, intervals over steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count, islice, product
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
from stash.trace.meetings import OWN_PARTS, JobTimes, RankStep, cause_of, last_shares
from stash.trace.spans import DEVICE, NANO, length
from stash.trace.step_parts import RankTimes, place_of

_HIDES = ("exchange", "transfer", "contention", "bubble")
"""Parts of which there may be more than a step shows."""
_WORTH = 0.01
"""Share of a step, below which nothing is supposed of a part, and no kernel is named."""
_MANY = 12
_ALONE = "the traces of other ranks are not there: exchange contains the waiting for them"


def trace_record(job: JobTimes, name: str, warnings: Sequence[str] = ()) -> Trace:
    """The record of a job's traces, which the file or folder ``name`` holds."""
    first = next(iter(job.ranks.values()))
    nodes = _nodes(job)
    step = _step_interval(job, lambda key: sum(job.parts[key].values()))
    world = first.trace.world or len(job.ranks)
    has_others = world > 1 or (first.trace.world is None and len(first.collectives) > 0)
    is_unknown = len(job.ranks) == 1 and has_others
    paths = critical_paths(job)
    # Parts of which there is any in a step, hidden or not, or on its path.
    counted = [
        parts[key] for parts in (job.parts, job.whole) for key in product(job.ranks, job.steps)
    ]
    there = {part for times in (*counted, *paths.values()) for part, time in times.items() if time}
    unknown = dict.fromkeys(("contention", "bubble") if is_unknown else (), _ALONE)
    traced = tuple(
        _part(job, part, step.value, paths)
        for part in TRACE_PARTS
        if part not in unknown and part in there
    )
    return Trace(
        stash_version=__version__,
        created=utc_now(),
        workload=name,
        tool=first.trace.tool,
        world_size=world,
        nodes=len(set(nodes.values())) if nodes else None,
        backend=first.trace.backend,
        device="device" if first.trace.has_device else "cpu",
        step=step,
        traced=traced,
        ranks=tuple(_rank(job, rank, last, nodes) for rank, last in last_shares(job)),
        steps=_steps(job),
        collectives=tuple(_collectives(job, nodes)),
        suppositions=tuple(_suppositions(job, step.value, traced, world)),
        unknown=unknown,
        like_exchange=_like_exchange(first, step.value * max(1, len(job.steps))),
        warnings=(*warnings, *_warnings(job, world)),
    )


def _step_interval(job: JobTimes, nanoseconds: Callable[[RankStep], float]) -> Interval:
    """Seconds, mean over ranks, of each step that counts."""
    return mean_interval(
        [fmean(nanoseconds((rank, number)) for rank in job.ranks) / NANO for number in job.steps]
    )


def _part(
    job: JobTimes, part: str, step: float, paths: Mapping[int, Mapping[str, int]]
) -> TracePart:
    time = _step_interval(job, lambda key: job.parts[key][part])
    whole = _step_interval(job, lambda key: job.whole[key].get(part, 0))
    places = [
        place_of(job.ranks[rank], moments)
        for rank, moments in job.idle.get(part, {}).items()
        if length(moments)
    ]
    return TracePart(
        name=part,
        time=time,
        share=time.value / step,
        whole_seconds=whole.value if part in _HIDES else None,
        path_seconds=fmean(path.get(part, 0) for path in paths.values()) / NANO if paths else None,
        place=max(filter(None, places), key=places.count, default=""),
    )


def _rank(job: JobTimes, rank: int, last: float, nodes: Mapping[int, int]) -> TracedRank:
    parts = {part: job.mean_seconds(rank, part) for part in TRACE_PARTS}
    seconds = sum(parts.values())
    is_alone = len(job.ranks) == 1
    late = job.lateness[rank] / len(job.steps) / NANO / max(1, len(job.ranks) - 1)
    has_met = bool(job.meetings) and not is_alone
    return TracedRank(
        rank=rank,
        node=nodes.get(rank),
        step_seconds=seconds,
        parts=parts,
        last_share=last if has_met else None,
        late_seconds=late if has_met else None,
        late_by=cause_of(job, rank) if not is_alone and late > _WORTH * seconds else "",
    )


def _steps(job: JobTimes) -> tuple[TracedStep, ...]:
    found = {
        number: TracedStep(number=number, seconds=None, why_left_out=why)
        for number, why in job.left_out.items()
    }
    for number in job.steps:
        parts = {
            part: fmean(job.parts[rank, number][part] for rank in job.ranks) / NANO
            for part in TRACE_PARTS
        }
        found[number] = TracedStep(number=number, seconds=sum(parts.values()), parts=parts)
    return tuple(found[number] for number in sorted(found))


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
    kinds = group_by(job.counted_meetings, lambda met: (met.op, met.group, met.ranks, met.bytes))
    found = []
    for (op, group, ranks, size), meetings in kinds.items():
        seconds = fmean(meeting.transfer for meeting in meetings) / NANO
        waits = [length(meeting.wait(rank)) for meeting in meetings for rank in meeting.spans]
        bus = bus_bytes(op, len(ranks), size)
        where = "inside a node" if len({nodes.get(rank) for rank in ranks}) == 1 else "across nodes"
        found.append(
            TracedCollective(
                op=op,
                group=group,
                ranks=len(ranks),
                where=where if nodes.keys() >= set(ranks) else "",
                each_step=len(meetings) / len(job.steps),
                bytes=size,
                seconds=seconds,
                wait_seconds=fmean(waits) / NANO,
                bus_bytes_per_second=bus / seconds if bus and seconds > 0 else None,
            )
        )
    found.sort(key=lambda kind: -kind.each_step * (kind.seconds + kind.wait_seconds))
    return found[:_MANY]


# What if


def _suppositions(
    job: JobTimes, step: float, traced: Sequence[TracePart], world: int
) -> Iterator[Supposition]:
    if job.meetings:
        rank, saved = max(job.saved.items(), key=lambda item: item[1])
        seconds = saved / len(job.steps) / NANO
        if seconds > _WORTH * step:
            text = f"rank {rank} arrives no later than the next one"
            yield Supposition(name=f"rank {rank} in time", text=text, step_seconds=step - seconds)
        # A step without differences between ranks and steps. With what a step takes now it makes S of Lin et al.,
        # "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025), of jobs without a
        # pipeline: that one's S needs its schedule.
        counted = [job.parts[key] for key in product(job.ranks, job.steps)]
        own = fmean(sum(parts[name] for name in OWN_PARTS) for parts in counted)
        alike = (own + median(parts["exchange"] for parts in counted)) / NANO
        text = "computing takes its mean, and exchange its median, of all ranks and steps"
        has_stages = any(meeting.is_point_to_point for meeting in job.meetings)
        if len(job.ranks) == world and not job.unmatched and not has_stages:
            text += f": S is {step / alike:.3f}"
        yield Supposition(name="ranks alike", text=text, step_seconds=alike)
    for part in traced:
        if part.name != "compute" and part.share > _WORTH:
            yield Supposition(name=f"no {part.name}", text="", step_seconds=step - part.seconds)


def _like_exchange(times: RankTimes, seconds: float) -> dict[str, float]:
    """Kernels that count as compute and sound like communication, with their share of all steps' ``seconds``."""
    names, device = times.trace.names, times.trace.spans[DEVICE]
    took = (device.stop - device.start) / (seconds * NANO)
    shares = np.bincount(device.label, weights=took, minlength=len(names))
    return {
        names[label]: shares[label]
        for label in np.argsort(-shares)[:200].tolist()
        if shares[label] > _WORTH
        and times.classes[label] == COMPUTE
        and label not in times.trace.facts
        and sounds_like_exchange(names[label])
    }


def _warnings(job: JobTimes, world: int) -> list[str]:
    traces = [times.trace for times in job.ranks.values()]
    found = [f"{trace.file}: {sentence}" for trace in traces for sentence in trace.damage]
    if any(GRAPH in trace.names for trace in traces):
        found.append(
            "CUDA graphs were recorded whole, and count as compute, whatever is in them; record with "
            "`nsys profile --cuda-graph-trace=node`."
        )
    missing = world - len(job.ranks)
    if missing > 0:
        first = islice(
            (str(rank) for rank in count() if rank not in job.ranks), min(missing, _MANY)
        )
        names = ", ".join(first) + (" …" if missing > _MANY else "")
        found.append(
            f"The traces of {format_count(missing, 'rank')} of {world} are missing ({names}): waiting for these "
            "counts as exchange."
        )
    return [*found, *(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in job.unmatched)]
